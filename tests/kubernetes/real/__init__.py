"""Whole clusters on a real control plane, with the kubelet for tests (`spritz_testing.kubelet`).

    make kubernetes-real KUBECONFIG=admin.conf

They need root, an API server on this machine (it calls webhooks through Services, which are addresses of this machine
here) with a controller manager and kube-scheduler, no other node that takes pods, and an administrator. Everything is
done through the API: the packaged manifests by server-side apply, the operator as its Deployment says. What is made is
removed again.
"""
