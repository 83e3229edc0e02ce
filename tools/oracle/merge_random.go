package main

import (
	"fmt"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// randomMerges draws sets of servers that share most of what they serve. Half
// of the sets shuffle each server's lists, so that orders contradict; every
// tenth differs in freshness alone.
func randomMerges() []mergeCase {
	r := &random{state: 1360400}
	var cases []mergeCase
	for n := range 220 {
		kind := "one order"
		switch {
		case n%10 == 9:
			kind = "freshness only"
		case n%2 == 1:
			kind = "shuffled"
		}
		base := randomGroups(r)
		ids := sample(r, []string{"apiserver-a", "apiserver-b", "apiserver-c", "apiserver-d", "apiserver-e"}, few(r, 2, 5))
		c := mergeCase{name: fmt.Sprintf("random %03d, %s", n, kind)}
		for _, id := range ids {
			var groups []group
			switch kind {
			case "freshness only":
				groups = refreshed(r, base)
			default:
				groups = variant(r, base, kind == "shuffled")
			}
			c.servers = append(c.servers, server(id, groups...))
		}
		cases = append(cases, c)
	}
	return cases
}

var (
	groupPool    = []string{"apps", "batch", "policy", "resource.k8s.io", "storage.k8s.io", "example.com", "autoscaling"}
	versionPool  = []string{"v2", "v1", "v1beta1", "v1alpha1"}
	resourcePool = []string{"pods", "jobs", "claims", "slices", "widgets", "roles", "leases"}
	verbPool     = []string{"create", "delete", "get", "list", "patch", "watch"}
	subPool      = []string{"status", "scale", "proxy"}
)

func randomGroups(r *random) []group {
	var groups []group
	for _, name := range sample(r, groupPool, min(6, r.below(9))) {
		g := grp(name)
		for _, version := range sample(r, versionPool, few(r, 1, 3)) {
			v := apiVersion{Version: version, Freshness: current}
			for _, resource := range sample(r, resourcePool, few(r, 0, 5)) {
				v.Resources = append(v.Resources, randomResource(r, resource))
			}
			g.Versions = append(g.Versions, v)
		}
		groups = append(groups, g)
	}
	return groups
}

// few prefers the small numbers of a range, to keep the documents small.
func few(r *random, low, high int) int {
	return min(r.between(low, high), r.between(low, high))
}

func randomResource(r *random, name string) apiResource {
	resource := apiResource{
		Resource:         name,
		ResponseKind:     &metav1.GroupVersionKind{Kind: "Thing"},
		Scope:            apidiscoveryv2.ScopeNamespace,
		SingularResource: singular(name),
		Verbs:            sample(r, verbPool, r.between(0, 3)),
	}
	if r.chance(20) {
		resource.Scope = apidiscoveryv2.ScopeCluster
	}
	if r.chance(20) {
		resource.ShortNames = []string{name[:2]}
	}
	if r.chance(15) {
		resource.Categories = []string{"all"}
	}
	if r.chance(25) {
		for _, s := range sample(r, subPool, r.between(1, 2)) {
			resource.Subresources = append(resource.Subresources,
				apiSubresource{Subresource: s, Verbs: sample(r, verbPool, r.between(1, 2))})
		}
	}
	return resource
}

// variant is what one server has of the base: most of it, some of it changed.
func variant(r *random, base []group, shuffled bool) []group {
	groups := some(r, base, 75)
	for i := range groups {
		versions := some(r, groups[i].Versions, 80)
		for j := range versions {
			resources := some(r, versions[j].Resources, 85)
			for k := range resources {
				if r.chance(25) {
					resources[k] = randomResource(r, resources[k].Resource)
				}
			}
			if shuffled {
				shuffle(r, resources)
			}
			versions[j].Resources = resources
			if r.chance(15) {
				versions[j].Freshness = pick(r, []apidiscoveryv2.DiscoveryFreshness{stale, ""})
			}
		}
		if shuffled {
			shuffle(r, versions)
		}
		groups[i].Versions = versions
	}
	if shuffled {
		shuffle(r, groups)
	}
	return groups
}

// refreshed is the base with other freshness here and there.
func refreshed(r *random, base []group) []group {
	groups := append([]group{}, base...)
	for i := range groups {
		groups[i].Versions = append([]apiVersion{}, groups[i].Versions...)
		for j := range groups[i].Versions {
			if r.chance(30) {
				groups[i].Versions[j].Freshness = pick(r, []apidiscoveryv2.DiscoveryFreshness{stale, ""})
			}
		}
	}
	return groups
}
