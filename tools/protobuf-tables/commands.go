package main

import (
	apps "k8s.io/api/apps/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// commands are objects as kubectl's commands make them.
func commands() []runtime.Object {
	labels := map[string]string{"app": "web"}
	pod := core.PodTemplateSpec{
		ObjectMeta: meta.ObjectMeta{Labels: labels},
		Spec:       core.PodSpec{Containers: []core.Container{{Name: "nginx", Image: "nginx"}}},
	}
	job := batch.JobSpec{Template: core.PodTemplateSpec{Spec: core.PodSpec{
		RestartPolicy: core.RestartPolicyNever,
		Containers:    []core.Container{{Name: "a", Image: "busybox", Command: []string{"date"}}},
	}}}
	replicas, path, background := int32(0), networking.PathTypePrefix, meta.DeletePropagationBackground
	minimum := intstr.FromString("50%")
	reader := []rbac.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	user := []rbac.Subject{{Kind: "User", APIGroup: rbac.GroupName, Name: "ada"}}
	return []runtime.Object{
		&core.ConfigMap{ObjectMeta: named("plain"), Data: map[string]string{"a": "1", "empty": ""}},
		&core.ConfigMap{ObjectMeta: named("binary"), BinaryData: map[string][]byte{"b": {0, 255, 1}, "none": {}}},
		&core.ConfigMap{},
		&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "team"}},
		&core.Secret{ObjectMeta: named("s"), Type: core.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("v")}},
		&core.ServiceAccount{ObjectMeta: named("robot")},
		&core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "dead", DeletionTimestamp: &meta.Time{}}},
		&core.Service{ObjectMeta: named("web"), Spec: core.ServiceSpec{
			Selector: labels, Type: core.ServiceTypeClusterIP,
			Ports: []core.ServicePort{{Name: "80", Port: 80, Protocol: core.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		}},
		&core.ResourceQuota{ObjectMeta: named("q"), Spec: core.ResourceQuotaSpec{
			Hard: core.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1.5Gi")},
		}},
		&core.Pod{ObjectMeta: named("p"), Spec: pod.Spec},
		&core.Event{ObjectMeta: named("e"), EventTime: meta.MicroTime{Time: meta.Unix(1_700_000_000, 123_456_789).Time}},
		&core.Binding{ObjectMeta: named("p"), Target: core.ObjectReference{Kind: "Node", Name: "n"}},
		&apps.Deployment{ObjectMeta: named("web"), Spec: apps.DeploymentSpec{
			Replicas: &replicas, Selector: &meta.LabelSelector{MatchLabels: labels}, Template: pod,
		}},
		&batch.Job{ObjectMeta: named("once"), Spec: job},
		&batch.CronJob{ObjectMeta: named("often"), Spec: batch.CronJobSpec{
			Schedule: "* * * * *", JobTemplate: batch.JobTemplateSpec{ObjectMeta: named("often"), Spec: job},
		}},
		&rbac.Role{ObjectMeta: named("reader"), Rules: reader},
		&rbac.Role{ObjectMeta: named("nothing")},
		&rbac.ClusterRole{ObjectMeta: meta.ObjectMeta{Name: "reader"}, Rules: reader},
		&rbac.RoleBinding{ObjectMeta: named("b"), Subjects: user, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "reader"}},
		&rbac.ClusterRoleBinding{Subjects: user, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "reader"}},
		&policy.PodDisruptionBudget{ObjectMeta: named("b"), Spec: policy.PodDisruptionBudgetSpec{MinAvailable: &minimum}},
		&policy.Eviction{ObjectMeta: named("p"), DeleteOptions: &meta.DeleteOptions{GracePeriodSeconds: new(int64)}},
		&scheduling.PriorityClass{ObjectMeta: meta.ObjectMeta{Name: "low"}, Value: -1000},
		&networking.Ingress{ObjectMeta: named("web"), Spec: networking.IngressSpec{Rules: []networking.IngressRule{{
			Host: "web.example", IngressRuleValue: networking.IngressRuleValue{HTTP: &networking.HTTPIngressRuleValue{
				Paths: []networking.HTTPIngressPath{{Path: "/", PathType: &path}},
			}},
		}}}},
		&autoscaling.HorizontalPodAutoscaler{ObjectMeta: named("web"), Spec: autoscaling.HorizontalPodAutoscalerSpec{MaxReplicas: 3}},
		&authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorization.ResourceAttributes{Verb: "get", Resource: "pods"},
		}},
		&authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: "ada", Extra: map[string]authorization.ExtraValue{"x": {"1", "2"}, "none": {}},
		}},
		deleteOptions("v1", background), deleteOptions("apps/v1", background), deleteOptions("batch/v1", background),
	}
}

func deleteOptions(apiVersion string, propagation meta.DeletionPropagation) *meta.DeleteOptions {
	options := meta.DeleteOptions{PropagationPolicy: &propagation, Preconditions: meta.NewUIDPreconditions("u-1")}
	options.SetGroupVersionKind(gvkOf(apiVersion, "DeleteOptions"))
	return &options
}
