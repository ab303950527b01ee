# A line, and under it what its output must hold.
kubectl version
> Server Version: v1.36.3+segue-embedded
kubectl api-resources
> controllerrevisions apps/v1 true ControllerRevision
> pods po v1 true Pod
kubectl api-versions
> coordination.k8s.io/v1
kubectl create deployment web --image=web
> the server could not find the requested resource
kubectl create role reader --verb=get --resource=pods
> the embedded API reads rbac.authorization.k8s.io/v1 Role as JSON or YAML only
kubectl rollout restart deployment/web
> deployment
kubectl top nodes
> Metrics API not available
kubectl apply -n script -f pods.yaml
> pod/web-0 created
kubectl logs web-0 -n script
> the embedded API does not serve this; a Kubernetes cluster does
kubectl exec web-0 -n script -- ls
> error
kubectl get --raw /readyz
> ok
