"""Names in option lists (SchedulerParameters, SlurmctldParameters …), for hints and warnings.

Slurm silently ignores an unknown option; here it causes a warning with the nearest name. Values of known options are
checked where they are used. `bf_policy`, `bf_predict`, `gpu_fragmentation`, `hetjob_share_nodes` (see docs/decisions),
`journal` (the database of standby controllers), `revision` (by which `scontrol show config` tells which file is in
force) and `private_hosts` are ours: with the last, nodes that share a machine see only their own name. Source:
slurm.conf(5) and newer releases.
"""

from __future__ import annotations

OPTIONS: dict[str, tuple[str, ...]] = {
    name: tuple(words.split())
    for name, words in {
        "JobCompParams": """
            connect_timeout enable_job_start flush_timeout poll_interval requeue_on_msg_timeout timeout topic
            topic_job_start""",
        "CliFilterParameters": "cli_filter_lua_path",
        "SchedulerParameters": """
            allow_zero_lic assoc_limit_stop batch_sched_delay bb_array_stage_cnt bf_allow_magnetic_slot bf_busy_nodes
            bf_continue bf_hetjob_immediate bf_hetjob_prio bf_interval bf_job_part_count_reserve bf_licenses
            bf_max_job_array_resv bf_max_job_assoc bf_max_job_part bf_max_job_start bf_max_job_test bf_max_job_user
            bf_max_job_user_part bf_max_time bf_min_age_reserve bf_min_prio_reserve bf_node_space_size
            bf_one_resv_per_job bf_policy bf_predict bf_resolution bf_running_job_reserve
            bf_topopt_enable bf_topopt_iterations bf_window
            bf_window_linear bf_yield_interval bf_yield_rpc_cnt bf_yield_sleep build_queue_timeout
            correspond_after_task_cnt default_gbytes default_queue_depth defer defer_batch delay_boot
            disable_hetjob_steps disable_job_shrink enable_hetjob_steps enable_job_state_cache enable_user_top
            extra_constraints gpu_fragmentation hetjob_share_nodes ignore_constraint_validation Ignore_NUMA
            ignore_prefer_validation jobs_per_user_per_hour
            max_array_tasks max_rpc_cnt max_sched_time max_script_size max_submit_line_size max_switch_wait
            no_backup_scheduling
            no_env_cache nohold_on_prolog_fail pack_serial_at_end partition_job_depth preempt_reorder_count
            preempt_strict_order preempt_youngest_first reduce_completing_frag requeue_delay requeue_setup_env_fail
            salloc_wait_nodes sbatch_wait_nodes sched_interval sched_max_job_start sched_min_interval
            spec_cores_first step_retry_count step_retry_time time_min_as_soft_limit whole_hetjob whole_pack""",
        "SlurmctldParameters": """
            allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connections_max conmgr_max_connections
            conmgr_quiesce_timeout conmgr_read_timeout conmgr_threads conmgr_use_poll conmgr_wait_write_delay
            conmgr_write_timeout disable_triggers drain_failing_nodes enable_async_reply enable_configless
            enable_expedited_requeue enable_job_state_cache enable_rpc_queue enable_stepmgr failing_node_seconds
            idle_on_node_suspend journal max_dbd_msg_action max_powered_nodes no_backup_scheduling no_quick_restart
            node_reg_mem_percent power_save_interval power_save_min_interval preempt_send_user_signal
            reboot_from_controller revision rl_bucket_size rl_enable rl_log_freq rl_refill_period rl_refill_rate
            rl_table_size user_resv_delete validate_nodeaddr_threads""",
        "SlurmdParameters": """
            allow_ecores config_overrides conmgr_threads conmgr_use_poll contain_spank dcgm_job_mapping_dir
            l3cache_as_socket
            numa_node_as_socket
            private_hosts shutdown_on_reboot""",
        "CommunicationParameters": """
            block_null_hash CheckGhalQuiesce disable_http DisableIPv4 EnableIPv6 getnameinfo_cache_timeout
            host_unreach_retry_count
            keepaliveinterval keepaliveprobes keepalivetime NoAddrCache NoCtldInAddrAny NoInAddrAny""",
        "DependencyParameters": "disable_remote_singleton kill_invalid_depend max_depend_depth",
        "LaunchParameters": """
            batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm lustre_no_flush mem_sort
            mpir_use_nodeaddr
            send_gids slurmstepd_memlock slurmstepd_memlock_all test_exec ulimit_pam_adopt use_interactive_step""",
        "PreemptParameters": """
            min_exempt_priority reclaim_licenses reorder_count send_user_signal strict_order suspend_grace_time
            youngest_first""",
        "TaskPluginParam": "Autobind Cores None OOMKillStep SlurmdOffSpec SlurmdSpecOverride Sockets Threads Verbose v",
        "BcastParameters": "Compression DestDir send_libs",
        "SbcastParameters": "Compression DestDir send_libs",
        "X11Parameters": "home_xauthority",
        "MetricsParameters": "ignore_private_data",
        "MpiParams": "ports disable_slurm_hydra_bootstrap",
        "AuthInfo": "cred_expire disable_sssd socket ttl use_client_ids",
        "TLSParameters": """
            ca_cert_file ctld_cert_file ctld_cert_key_file dbd_cert_file dbd_cert_key_file load_system_certificates
            restd_cert_file restd_cert_key_file sackd_cert_file sackd_cert_key_file security_policy_version
            slurmd_cert_file slurmd_cert_key_file""",
        "AuthAltParameters": """
            disable_token_creation jwks jwt_key max_token_lifespan userclaimfield""",
        "JobAcctGatherFrequency": "task energy network filesystem",
    }.items()
}

#: Supported options that take one of these words ("": the word may be omitted).
WORDS: dict[str, tuple[str, ...]] = {
    "Autobind": ("none", "threads", "cores", "sockets"),
    "bf_hetjob_prio": ("min", "avg", "max"),
    "bf_policy": ("conservative", "easy"),
    "bf_predict": ("", "priority", "slowdown"),
}

#: Supported options that take a number: (minimum, maximum).
INTEGERS: dict[str, tuple[int, int]] = {
    "bf_interval": (1, 43_200),
    "bf_window": (1, 43_200),
    "bf_max_job_test": (0, 1_000_000),
    "bf_max_job_array_resv": (0, 1000),
    "bf_max_job_assoc": (0, 1_000_000),
    "bf_max_job_part": (0, 1_000_000),
    "bf_max_job_start": (0, 10_000),
    "bf_job_part_count_reserve": (0, 100_000),
    "bf_max_job_user": (0, 1_000_000),
    "bf_max_job_user_part": (0, 1_000_000),
    "bf_min_age_reserve": (0, 2_592_000),
    "bf_min_prio_reserve": (0, 2**63),
    "bf_resolution": (1, 3600),
    "batch_sched_delay": (0, 86_400),
    "sched_interval": (1, 86_400),
    "sched_max_job_start": (0, 2**31 - 1),
    "sched_min_interval": (0, 2**31 - 1),
    "default_queue_depth": (0, 2**31 - 1),
    "jobs_per_user_per_hour": (0, 2**31 - 1),
    "drain_failing_nodes": (2, 1_000_000),
    "failing_node_seconds": (1, 3600),
    "max_powered_nodes": (1, 2**31 - 1),
    "rl_bucket_size": (1, 2**31 - 1),
    "rl_log_freq": (0, 31_536_000),
    "rl_refill_period": (1, 86_400),
    "rl_refill_rate": (1, 2**31 - 1),
    "rl_table_size": (1, 1_000_000),
    "max_switch_wait": (0, 31_536_000),
    "max_array_tasks": (1, 4_000_001),
    "max_script_size": (1, 512 * 1024 * 1024),
    "max_submit_line_size": (1, 2 * 1024 * 1024),
    "max_depend_depth": (0, 2**31 - 1),
    "min_exempt_priority": (0, 2**32 - 3),
    "reorder_count": (0, 1000),
    "requeue_delay": (0, 31_536_000),
    "preempt_reorder_count": (0, 1000),
    "suspend_grace_time": (0, 3600),
}

#: Options among these whose number must be all of the value, as in Slurm; of others, text behind the number is passed
#: over.
WHOLE: frozenset[str] = frozenset({"min_exempt_priority"})

#: Options among these that also accept -1, which means never.
OFF: frozenset[str] = frozenset({"bf_interval", "rl_log_freq", "sched_interval"})

#: Supported options that take a percentage, such as 97.5.
PERCENTAGES: frozenset[str] = frozenset({"node_reg_mem_percent"})
