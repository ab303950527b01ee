# One line, one shell; $KUBECONFIG says which server. Files are in files/, besides crds/ and examples/.

# Reading.
kubectl get ns script
kubectl get ns -o name
kubectl get pods -n script
kubectl get events -n script
kubectl get nosuchkind
kubectl get pod nosuchpod -n script
kubectl explain pod.spec.containers --api-version=v1 | head -3
kubectl auth can-i create pods
kubectl cluster-info | head -1

# Applying, from the client.
kubectl apply -n script -f settings.yaml
kubectl apply -n script -f settings.yaml
kubectl diff -n script -f settings-green.yaml
kubectl apply -n script -f settings-green.yaml
kubectl apply -n script --dry-run=server -f settings.yaml
kubectl get cm settings -n script -o yaml
kubectl get cm settings -n script -o yaml --show-managed-fields
kubectl get cm settings -n script -o jsonpath='{.data.color}{"\n"}'
kubectl get cm settings -n script -o custom-columns=N:.metadata.name,C:.data.color
kubectl describe cm settings -n script

# Applying, on the server.
kubectl apply -n script --server-side --field-manager=other -f settings.yaml
kubectl apply -n script --server-side --field-manager=other --force-conflicts -f settings.yaml
kubectl get cm settings -n script -o yaml --show-managed-fields
kubectl apply -n script --server-side -f settings.yaml

# Changing.
EDITOR='sed -i s/blue/red/' kubectl edit cm settings -n script
KUBE_EDITOR='sed -i s/settings/other/' kubectl edit cm settings -n script 2>&1 | sed 's/"[^"]*yaml"/FILE/; s/kubectl-edit-[0-9]*/FILE/'
kubectl patch cm settings -n script --type json -p '[{"op":"add","path":"/data/c","value":"3","zork":1}]'
kubectl patch cm settings -n script -p '{"data":{"a":"1"}}'
kubectl patch cm settings -n script --type merge -p '{"data":{"b":"2","size":null}}'
kubectl patch cm settings -n script --type json -p '[{"op":"remove","path":"/data/b"}]'
kubectl patch cm settings -n script --type json -p '[{"op":"remove","path":"/data/b"}]'
kubectl patch cm settings -n script --type json -p '[{"op":"add","path":"/data/c","value":"3","zork":1}]'
kubectl patch cm settings -n script -p '{"data":{"a":"1"}}'
kubectl label cm settings -n script tier=front
kubectl label cm settings -n script tier=back
kubectl label cm settings -n script tier=back --overwrite
kubectl label cm settings -n script tier-
kubectl label cm settings -n script tier='not allowed'
kubectl annotate cm settings -n script note='free text'
kubectl get cm settings -n script -o json
kubectl replace -n script -f settings.yaml
kubectl get cm -n script -l app=web -o name
kubectl get cm -n script -l 'app in (web,db),!tier' -o name
kubectl get cm -n script --field-selector metadata.name=settings -o name
kubectl get cm -n script --field-selector data.color=blue

# Pods, nodes, services and events.
kubectl apply -n script -f pods.yaml -f node.yaml -f service.yaml
kubectl create -n script -f event.yaml
kubectl create -n script -f event.yaml
kubectl get pods -n script
kubectl get pods -n script -o wide
kubectl get pods -n script --show-labels
kubectl get pods -n script -L app --no-headers
kubectl get pods -A -l app --chunk-size=1
kubectl get pods -n script --chunk-size=1
kubectl get pods -n script --field-selector status.phase=Pending,metadata.name!=web-1
kubectl get pods -n script --sort-by=.metadata.labels.app
kubectl get pods,svc -n script
kubectl get pod/web-0 svc/web -n script
timeout 2 kubectl get pods -n script -w
timeout 2 kubectl get pods -n script --watch-only -o name
kubectl get pod web-0 -n script -o yaml
kubectl get svc web -n script -o yaml
kubectl describe pod web-0 -n script
# Nobody fills in the endpoints of a service here.
kubectl describe svc web -n script | grep -v ^Endpoints
kubectl get nodes --show-labels
kubectl get events -n script
kubectl get events -n script --for pod/web-0
kubectl events -n script
kubectl get events.events.k8s.io -n script
kubectl patch pod web-0 -n script --subresource=status -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
kubectl wait -n script --for=condition=Ready pod/web-0 --timeout=10s
kubectl wait -n script --for=condition=Ready pod/web-1 --timeout=1s
kubectl wait -n script --for=jsonpath='{.status.phase}'=Pending pod/web-0 --timeout=10s
kubectl get pod web-0 -n script
kubectl cordon node-a
kubectl get node node-a -o jsonpath='{.spec.unschedulable}{"\n"}'
kubectl uncordon node-a
kubectl taint node node-a special=yes:NoSchedule
kubectl rollout status pod/web-0 -n script
kubectl rollout restart pod/web-0 -n script
kubectl scale pod/web-0 -n script --replicas=2
kubectl patch pod web-0 -n script -p '{"spec":{"restartPolicy":"Never"}}' 2>&1 | head -1

# Creating without a file: kubectl sends protobuf.
kubectl create ns made
kubectl create ns made
kubectl get ns made -o jsonpath='{.metadata.labels}{"\n"}'
kubectl create configmap literal -n script --from-literal=a=b --from-file=service.yaml
kubectl get cm literal -n script -o yaml --show-managed-fields
kubectl create secret generic password -n script --from-literal=user=me
kubectl get secret password -n script -o yaml
kubectl describe secret password -n script
kubectl create configmap Bad_Name -n script

# Deleting.
kubectl delete pod web-1 -n script
kubectl delete pod web-1 -n script
kubectl delete pod web-1 -n script --ignore-not-found
kubectl delete pod web-0 -n script --cascade=orphan --wait=false
kubectl wait -n script --for=delete pod/web-0 --timeout=10s
kubectl delete cm literal -n script --cascade=foreground
kubectl delete cm -n script -l app=web
kubectl delete svc,secret --all -n script
kubectl delete -f node.yaml
kubectl apply -n script -f owned.yaml
kubectl patch cm owned -n script --type merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"owner\",\"blockOwnerDeletion\":true,\"uid\":\"$(kubectl get cm owner -n script -o jsonpath='{.metadata.uid}')\"}]}}"
kubectl delete cm owner -n script --cascade=foreground
kubectl get cm owned -n script

# Our kinds.
kubectl apply --server-side -f crds
kubectl wait --for=condition=Established crd --all --timeout=30s | grep -E 'leaderworker|modelserving|modeldeployment|raycluster|rayservice'
kubectl get lws -n script
kubectl apply -n script -f examples/lws-startup-policy/leaderworkerset.yaml
kubectl apply -n script -f examples/lws-startup-policy/leaderworkerset.yaml
kubectl apply -n script -f examples/backendai-model-service-deployment
kubectl apply -n script -f examples/modelserving-role-upgrade-order/modelserving.yaml
kubectl apply -n script -f examples/modelserving-role-upgrade-order/modelserving-v2.yaml
kubectl apply -n script -f examples/ray-gcs-ha/raycluster.yaml -f examples/ray-gcs-ha/raycluster-secret.yaml
kubectl apply -n script -f examples/rayservice-incremental-upgrade/rayservice.yaml
kubectl diff -n script -f examples/rayservice-incremental-upgrade/rayservice-v2.yaml
kubectl apply -n script --server-side -f examples/rayservice-incremental-upgrade/blue-green.yaml
kubectl get lws,modelservings,modeldeployments,rayclusters,rayservices -n script
kubectl get lws,modelservings,modeldeployments,rayclusters,rayservices -n script -o wide
kubectl get lws ray -n script -o yaml
kubectl describe lws ray -n script
kubectl describe rayservices -n script
kubectl explain lws.spec.startupPolicy
kubectl explain leaderworkersets.spec --recursive | head -20
kubectl scale lws ray -n script --replicas=3
kubectl scale lws ray -n script --replicas=4 --current-replicas=2
kubectl get lws ray -n script -o jsonpath='{.spec.replicas} {.metadata.generation}{"\n"}'
kubectl get lws ray -n script --subresource=scale -o yaml
kubectl patch lws ray -n script -p '{"spec":{"replicas":1}}'
kubectl patch lws ray -n script --type merge -p '{"spec":{"replicas":-1}}'
kubectl patch lws ray -n script --type merge -p '{"spec":{"replica":1}}'
kubectl rollout status lws/ray -n script
kubectl rollout restart lws/ray -n script
kubectl autoscale lws ray -n script --max=3 --dry-run=client -o name
kubectl delete lws ray -n script
kubectl delete crd leaderworkersets.leaderworkerset.x-k8s.io
kubectl get lws -n script
kubectl delete ns made
kubectl get ns made
