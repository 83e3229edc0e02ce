package main

import (
	"encoding/json"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Short forms for writing documents down.
type (
	apiVersion     = apidiscoveryv2.APIVersionDiscovery
	apiResource    = apidiscoveryv2.APIResourceDiscovery
	apiSubresource = apidiscoveryv2.APISubresourceDiscovery
)

const (
	current = apidiscoveryv2.DiscoveryFreshnessCurrent
	stale   = apidiscoveryv2.DiscoveryFreshnessStale
)

func grp(name string, versions ...apiVersion) group {
	return group{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: versions}
}

func ver(name string, resources ...apiResource) apiVersion {
	return apiVersion{Version: name, Resources: resources, Freshness: current}
}

func res(name, kind string, verbs ...string) apiResource {
	return apiResource{
		Resource:         name,
		ResponseKind:     &metav1.GroupVersionKind{Kind: kind},
		Scope:            apidiscoveryv2.ScopeNamespace,
		SingularResource: singular(name),
		Verbs:            verbs,
	}
}

func sub(name string, verbs ...string) apiSubresource {
	return apiSubresource{
		Subresource:  name,
		ResponseKind: &metav1.GroupVersionKind{Kind: "Scale"},
		Verbs:        verbs,
	}
}

func singular(resource string) string { return resource[:len(resource)-1] }

func with(r apiResource, changes ...func(*apiResource)) apiResource {
	for _, change := range changes {
		change(&r)
	}
	return r
}

func subs(s ...apiSubresource) func(*apiResource) {
	return func(r *apiResource) { r.Subresources = s }
}

func fresh(v apiVersion, f apidiscoveryv2.DiscoveryFreshness) apiVersion {
	v.Freshness = f
	return v
}

// server makes a document; a server without groups lists none.
func server(id string, groups ...group) serverRecord {
	return serverRecord{ID: id, Items: groupsJSON(append([]group{}, groups...))}
}

// raw is a server whose document is given as text.
func raw(id, items string) serverRecord {
	return serverRecord{ID: id, Items: json.RawMessage(items)}
}

func mergeCases() []mergeCase {
	const a, b, c, d = "apiserver-a", "apiserver-b", "apiserver-c", "apiserver-d"
	pods := res("pods", "Pod", "get", "list")
	nodes := res("nodes", "Node", "get", "list")
	jobs := res("jobs", "Job", "create", "get")
	crons := res("cronjobs", "CronJob", "get")
	apps := grp("apps", ver("v1", pods))
	batch := grp("batch", ver("v1", jobs))
	policy := grp("policy", ver("v1", nodes))

	cases := []mergeCase{
		{"no peers", []serverRecord{server(a, apps, batch)}},
		{"no peers, nothing local", []serverRecord{server(a)}},
		{"peer adds nothing", []serverRecord{server(a, apps, batch), server(b, apps, batch)}},
		{"peer lacks a group", []serverRecord{server(a, apps, batch), server(b, apps)}},
		{"peer adds a group", []serverRecord{server(a, apps), server(b, apps, batch)}},
		{"peer has only another group", []serverRecord{server(a, batch), server(b, apps)}},
		{"peer adds a version", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", pods), ver("v1beta1", pods)))}},
		{"peer adds a better version", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v2", pods), ver("v1", pods)))}},
		{"peer has only another version", []serverRecord{
			server(a, grp("apps", ver("v2", pods))), server(b, grp("apps", ver("v1", pods)))}},
		{"peer adds a resource", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", pods, nodes)))}},
		{"peer adds a resource in front", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", nodes, pods)))}},
		{"peer has only another resource", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", nodes)))}},
		{"peer adds a verb", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", res("pods", "Pod", "get", "list", "watch"))))}},
		{"peer lacks a verb", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", res("pods", "Pod", "list"))))}},
		{"peer adds a subresource", []serverRecord{
			server(a, apps), server(b, grp("apps", ver("v1", with(pods, subs(sub("status", "get"))))))}},
		{"peer has another subresource", []serverRecord{
			server(a, grp("apps", ver("v1", with(pods, subs(sub("status", "get")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(sub("scale", "get"))))))}},
		{"everything is new in the peer", []serverRecord{
			server(a, grp("apps", ver("v1", pods))),
			server(b, grp("apps", ver("v2", nodes), ver("v1", with(jobs, subs(sub("status", "get"))), pods)), batch)}},

		{"empty local", []serverRecord{server(a), server(b, apps, batch)}},
		{"empty peer", []serverRecord{server(a, batch, apps), server(b)}},
		{"all empty", []serverRecord{server(a), server(b), server(c)}},
		{"one of three has anything", []serverRecord{server(b), server(a), server(c, batch, apps)}},
		{"group without versions", []serverRecord{server(a, grp("apps")), server(b, apps)}},
		{"group without versions everywhere", []serverRecord{server(a, grp("apps")), server(b, grp("apps"))}},
		{"version without resources", []serverRecord{server(a, grp("apps", ver("v1"))), server(b, apps)}},
		{"version without resources in the peer", []serverRecord{server(a, apps), server(b, grp("apps", ver("v1")))}},
		{"resource without verbs", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod")))), server(b, apps)}},
		{"resource without verbs, shortNames differ", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod")))),
			server(b, grp("apps", ver("v1", with(res("pods", "Pod"), func(r *apiResource) { r.ShortNames = []string{"po"} }))))}},

		{"other group order", []serverRecord{server(a, apps, batch), server(b, batch, apps)}},
		{"other group order, unsorted server first", []serverRecord{server(a, batch, apps), server(b, apps, batch)}},
		{"other group order, nobody complete", []serverRecord{
			server(a, batch, apps), server(b, apps, batch), server(c, policy)}},
		{"other version order", []serverRecord{
			server(a, grp("apps", ver("v1", pods), ver("v2", pods))),
			server(b, grp("apps", ver("v2", pods), ver("v1", pods)))}},
		{"other version order, nobody complete", []serverRecord{
			server(a, grp("apps", ver("v2", pods), ver("v1", pods))),
			server(b, grp("apps", ver("v1", pods), ver("v2", pods), ver("v3", pods)))}},
		{"other resource order", []serverRecord{
			server(a, grp("apps", ver("v1", pods, nodes))), server(b, grp("apps", ver("v1", nodes, pods)))}},
		{"other resource order, nobody complete", []serverRecord{
			server(a, grp("apps", ver("v1", pods, nodes, jobs))),
			server(b, grp("apps", ver("v1", nodes, pods, crons)))}},
		{"groups contradict, cycle of two", []serverRecord{
			server(a, policy, batch, apps), server(b, apps, batch), server(c, grp("zoo", ver("v1", pods)))}},
		{"groups contradict, cycle of three", []serverRecord{
			server(a, policy, batch), server(b, batch, apps), server(c, apps, policy)}},
		{"groups contradict, cycle of four", []serverRecord{
			server(a, policy, batch), server(b, batch, apps), server(c, apps, grp("zoo")), server(d, grp("zoo"), policy)}},
		{"groups form a chain over servers", []serverRecord{
			server(a, policy, batch), server(b, batch, apps), server(c, grp("zoo"), policy)}},
		{"versions contradict, cycle of three", []serverRecord{
			server(a, grp("apps", ver("v3", pods), ver("v2", pods))),
			server(b, grp("apps", ver("v2", pods), ver("v1", pods))),
			server(c, grp("apps", ver("v1", pods), ver("v3", pods)))}},
		{"resources contradict, cycle of three", []serverRecord{
			server(a, grp("apps", ver("v1", pods, nodes))),
			server(b, grp("apps", ver("v1", nodes, jobs))),
			server(c, grp("apps", ver("v1", jobs, pods)))}},
		{"versions merge pairwise, third server last", []serverRecord{
			server(a, grp("apps", ver("v2", pods))),
			server(b, grp("apps", ver("v1", pods))),
			server(c, grp("apps", ver("v2", pods), ver("v1", pods)))}},
		{"resources merge pairwise, complete list is in the middle", []serverRecord{
			server(a, grp("apps", ver("v1", pods))),
			server(b, grp("apps", ver("v1", pods, nodes, jobs))),
			server(c, grp("apps", ver("v1", jobs, nodes)))}},

		{"freshness differs: Current, Stale", []serverRecord{
			server(a, apps), server(b, grp("apps", fresh(ver("v1", pods), stale)))}},
		{"freshness differs: Stale, Current", []serverRecord{
			server(a, grp("apps", fresh(ver("v1", pods), stale))), server(b, apps)}},
		{"freshness differs: Current, absent", []serverRecord{
			server(a, apps), server(b, grp("apps", fresh(ver("v1", pods), "")))}},
		{"freshness differs: absent, Current, Stale", []serverRecord{
			server(a, grp("apps", fresh(ver("v1", pods), ""))), server(b, apps),
			server(c, grp("apps", fresh(ver("v1", pods), stale)))}},
		{"freshness and a resource differ", []serverRecord{
			server(a, grp("apps", fresh(ver("v1", pods), stale))), server(b, grp("apps", ver("v1", pods, nodes)))}},
		{"freshness and a group differ", []serverRecord{
			server(a, grp("apps", fresh(ver("v1", pods), stale))), server(b, apps, batch)}},
		{"freshness differs in one of two groups", []serverRecord{
			server(a, apps, batch), server(b, apps, grp("batch", fresh(ver("v1", jobs), stale)))}},

		{"verbs in another order", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod", "list", "get")))),
			server(b, grp("apps", ver("v1", res("pods", "Pod", "get", "list"))))}},
		{"unsorted verbs, the same everywhere", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod", "watch", "get", "list")))),
			server(b, grp("apps", ver("v1", res("pods", "Pod", "watch", "get", "list"))))}},
		{"unsorted verbs, merged because of a short name", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod", "watch", "get", "list")))),
			server(b, grp("apps", ver("v1", with(res("pods", "Pod", "watch", "get", "list"),
				func(r *apiResource) { r.ShortNames = []string{"po"} }))))}},
		{"a verb twice", []serverRecord{
			server(a, grp("apps", ver("v1", res("pods", "Pod", "get", "get")))), server(b, apps)}},
		{"subresources have different verbs", []serverRecord{
			server(a, grp("apps", ver("v1", with(pods, subs(sub("scale", "get", "update")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(sub("scale", "get", "patch"))))))}},
		{"subresources have different verbs on three servers", []serverRecord{
			server(c, grp("apps", ver("v1", with(pods, subs(sub("scale", "get")))))),
			server(a, grp("apps", ver("v1", with(pods, subs(sub("scale", "patch")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(sub("scale", "update"))))))}},
		{"subresources in another order", []serverRecord{
			server(a, grp("apps", ver("v1", with(pods, subs(sub("status", "get"), sub("scale", "get")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(sub("scale", "get"), sub("status", "get"))))))}},
		{"unsorted subresources, the same everywhere", []serverRecord{
			server(a, grp("apps", ver("v1", with(pods, subs(sub("status", "get"), sub("scale", "get")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(sub("status", "get"), sub("scale", "get"))))))}},
		{"subresource responseKind and acceptedTypes differ", []serverRecord{
			server(a, grp("apps", ver("v1", with(pods, subs(sub("eviction", "create")))))),
			server(b, grp("apps", ver("v1", with(pods, subs(apiSubresource{
				Subresource:   "eviction",
				ResponseKind:  &metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
				AcceptedTypes: []metav1.GroupVersionKind{{Group: "policy", Version: "v1", Kind: "Eviction"}},
				Verbs:         []string{"create"},
			})))))}},

		{"resource is in one server only, verbs unsorted", []serverRecord{
			server(a, apps), server(b, apps, grp("batch", ver("v1", res("jobs", "Job", "watch", "get"))))}},
		{"first server in order of identity is not the first given", []serverRecord{
			server(c, grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"c"} })))),
			server(a, grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"a"} })))),
			server(b, grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"b"} }))))}},
		{"identities sort by bytes", []serverRecord{
			server("apiserver-10", grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"ten"} })))),
			server("apiserver-9", grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"nine"} })))),
			server("Apiserver-9", grp("apps", ver("v1", with(pods, func(r *apiResource) { r.ShortNames = []string{"upper"} }))))}},
	}

	// One field of one resource differs.
	for _, field := range []struct {
		name   string
		change func(*apiResource)
	}{
		{"responseKind differs", func(r *apiResource) {
			r.ResponseKind = &metav1.GroupVersionKind{Group: "other", Version: "v9", Kind: "Thing"}
		}},
		{"responseKind is absent", func(r *apiResource) { r.ResponseKind = nil }},
		{"scope differs", func(r *apiResource) { r.Scope = apidiscoveryv2.ScopeCluster }},
		{"singularResource is empty", func(r *apiResource) { r.SingularResource = "" }},
		{"shortNames differs", func(r *apiResource) { r.ShortNames = []string{"po", "p"} }},
		{"categories differs", func(r *apiResource) { r.Categories = []string{"all"} }},
	} {
		changed := grp("apps", ver("v1", with(pods, field.change)))
		cases = append(cases,
			mergeCase{field.name + ", in the second server", []serverRecord{server(a, apps), server(b, changed)}},
			mergeCase{field.name + ", in the first server", []serverRecord{server(a, changed), server(b, apps)}})
	}

	cases = append(cases, kubeLikeCases()...)
	return append(cases, rawCases()...)
}

// kubeLikeCases are three servers of different releases, each without a group
// that another has.
func kubeLikeCases() []mergeCase {
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	status := sub("status", "get", "patch", "update")
	deployments := with(res("deployments", "Deployment", all...), subs(sub("scale", "get", "patch", "update"), status))
	deployments.ShortNames = []string{"deploy"}
	deployments.Categories = []string{"all"}
	apps := grp("apps", ver("v1", deployments))
	batch := grp("batch", ver("v1", res("cronjobs", "CronJob", all...), res("jobs", "Job", all...)))
	flow := func(versions ...string) group {
		g := grp("flowcontrol.apiserver.k8s.io")
		for _, v := range versions {
			g.Versions = append(g.Versions, ver(v, res("flowschemas", "FlowSchema", all...)))
		}
		return g
	}
	claims := func(versions ...string) group {
		g := grp("resource.k8s.io")
		for _, v := range versions {
			g.Versions = append(g.Versions, ver(v, with(res("resourceclaims", "ResourceClaim", all...), subs(status))))
		}
		return g
	}
	storage := grp("storagemigration.k8s.io", ver("v1alpha1", res("storageversionmigrations", "StorageVersionMigration", all...)))

	return []mergeCase{
		{"three releases, each lacks another's group", []serverRecord{
			server("apiserver-old", apps, batch, flow("v1", "v1beta3")),
			server("apiserver-mid", apps, flow("v1"), claims("v1beta1", "v1alpha3")),
			server("apiserver-new", batch, claims("v1", "v1beta2", "v1beta1"), storage),
		}},
		{"three releases, a version apart", []serverRecord{
			server("apiserver-1", apps, flow("v1", "v1beta3"), claims("v1alpha2")),
			server("apiserver-2", apps, flow("v1"), claims("v1alpha3")),
			server("apiserver-3", apps, flow("v1"), claims("v1beta1", "v1alpha3")),
		}},
		{"three releases, the newest is local and sorts last", []serverRecord{
			server("apiserver-z", apps, batch, flow("v1"), claims("v1"), storage),
			server("apiserver-x", apps, batch, flow("v1", "v1beta3")),
			server("apiserver-y", apps, batch, flow("v1"), claims("v1", "v1beta1")),
		}},
	}
}

// rawCases are documents as other printers write them.
func rawCases() []mergeCase {
	pods := func(rest string) string {
		return `[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[` +
			`{"resource":"pods","scope":"Namespaced","singularResource":"pod"` + rest + `}],"freshness":"Current"}]}]`
	}
	verbs := `,"verbs":["list","get"]`
	pair := func(name, first, second string) mergeCase {
		return mergeCase{name, []serverRecord{raw("apiserver-a", first), raw("apiserver-b", second)}}
	}
	return []mergeCase{
		pair("creationTimestamp null in one server",
			`[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`),
		pair("creationTimestamp null, peer adds a version",
			`[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v2"},{"version":"v1"}]}]`),
		pair("metadata of the group differs",
			`[{"metadata":{"name":"apps","uid":"1"},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{"name":"apps","uid":"2"},"versions":[{"version":"v1"}]}]`),
		pair("metadata of the group and a version differ",
			`[{"metadata":{"name":"apps","uid":"1"},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{"name":"apps","uid":"2"},"versions":[{"version":"v2"}]}]`),
		pair("kind and apiVersion of the group in one server",
			`[{"kind":"APIGroupDiscovery","apiVersion":"apidiscovery.k8s.io/v2","metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"},{"version":"v2"}]}]`),
		pair("unknown fields are dropped",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","new":{"x":1}}],"more":true}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`),
		pair("verbs null and verbs absent", pods(`,"verbs":null`), pods(``)),
		pair("verbs null and verbs empty", pods(`,"verbs":null`), pods(`,"verbs":[]`)),
		pair("verbs empty in both", pods(`,"verbs":[]`), pods(`,"verbs":[]`)),
		pair("shortNames empty and absent, verbs unsorted", pods(verbs+`,"shortNames":[]`), pods(verbs)),
		pair("categories empty and absent, verbs unsorted", pods(verbs), pods(verbs+`,"categories":[]`)),
		pair("subresources empty and absent, verbs unsorted", pods(verbs), pods(verbs+`,"subresources":[]`)),
		pair("subresources empty in both, verbs unsorted", pods(verbs+`,"subresources":[]`), pods(verbs+`,"subresources":[]`)),
		pair("responseKind empty and absent, verbs unsorted",
			pods(verbs+`,"responseKind":{"group":"","version":"","kind":""}`), pods(verbs)),
		pair("responseKind empty and partly given, verbs unsorted",
			pods(verbs+`,"responseKind":{}`), pods(verbs+`,"responseKind":{"group":"","version":"","kind":""}`)),
		pair("versions empty and absent",
			`[{"metadata":{"name":"apps"},"versions":[]}]`, `[{"metadata":{"name":"apps"}}]`),
		pair("resources empty and absent",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[]}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`),
		pair("a group twice in one server",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]},{"metadata":{"name":"apps"},"versions":[{"version":"v2"}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`),
		pair("a group twice in both servers",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]},{"metadata":{"name":"apps"},"versions":[{"version":"v2"}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]},{"metadata":{"name":"apps"},"versions":[{"version":"v2"}]}]`),
		pair("a version twice in one server",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"},{"version":"v1","freshness":"Stale"}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`),
		pair("a resource twice in one server",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[`+
				`{"resource":"pods","scope":"Namespaced","singularResource":"pod","verbs":["get"]},`+
				`{"resource":"pods","scope":"Cluster","singularResource":"pod","verbs":["list"]}]}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[`+
				`{"resource":"pods","scope":"Namespaced","singularResource":"pod","verbs":["get"]}]}]}]`),
		pair("a resource twice in the second server",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[`+
				`{"resource":"pods","scope":"Namespaced","singularResource":"pod","verbs":["get"]}]}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[`+
				`{"resource":"pods","scope":"Namespaced","singularResource":"pod","verbs":["get"]},`+
				`{"resource":"pods","scope":"Cluster","singularResource":"pod","verbs":["list"]}]}]}]`),
		pair("a resource without a name",
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"","scope":"Namespaced","singularResource":"","verbs":["get"]}]}]}]`,
			`[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"","scope":"Cluster","singularResource":"x","verbs":["list"]}]}]}]`),
		pair("the group without a name",
			`[{"metadata":{"name":""},"versions":[{"version":"v1"}]},{"metadata":{"name":"apps"},"versions":[{"version":"v1"}]}]`,
			`[{"metadata":{},"versions":[{"version":"v2"}]}]`),
	}
}
