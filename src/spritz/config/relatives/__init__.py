"""Files beside slurm.conf, one module each. (gres.conf belongs to Gres= of slurm.conf: `config.gres`.)

`topology`, `topology_yaml`  topology.conf: switches and blocks; topology.yaml: several networks by name
`containers`                 job_container.conf: private directories of jobs
`oci`                        oci.conf: how a runtime runs containers
`helpers`                    helpers.conf: features that nodes can change, and the programs that do it
"""
