package main

import (
	"fmt"
	"slices"

	utilsort "k8s.io/apimachinery/pkg/util/sort"
)

type orderRecord struct {
	Lists  [][]string `json:"lists"`
	Merged []string   `json:"merged"`
}

func orderRecords() []orderRecord {
	var records []orderRecord
	for _, lists := range append(orderCases(), randomOrders()...) {
		given := make([][]string, len(lists))
		for i := range lists {
			given[i] = append([]string{}, lists[i]...)
		}
		merged := utilsort.MergePreservingRelativeOrder(given)
		records = append(records, orderRecord{Lists: given, Merged: append([]string{}, merged...)})
	}
	return records
}

func orderCases() [][][]string {
	chain := func(from, to, step int) []string {
		var names []string
		for i := from; i <= to; i += step {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		return names
	}
	backwards := chain(1, 30, 1)
	slices.Reverse(backwards)

	return [][][]string{
		{},
		{{}},
		{{}, {}},
		{{"a"}},
		{{"b", "a"}},
		{{"a"}, {"a"}},
		{{"b"}, {"a"}},
		{{}, {"b", "a"}},
		{{"b", "a"}, {}},
		{{}, {"a"}, {}, {"b"}},
		{{""}},
		{{"", "a"}, {"b", ""}},
		// One list holds every name: it wins as it is, whatever others say.
		{{"a", "b"}, {"b", "a"}},
		{{"b", "a"}, {"a", "b"}},
		{{"c", "b", "a"}, {"a", "b"}},
		{{"a", "b"}, {"c", "b", "a"}},
		{{"a"}, {"c", "a", "b"}, {"b", "a", "c"}},
		{{"c", "a", "b"}, {"a", "c"}, {"b", "c"}},
		// Nobody holds every name.
		{{"b", "a"}, {"c"}},
		{{"c", "a"}, {"b"}},
		{{"a", "c"}, {"b", "c"}},
		{{"c", "b"}, {"c", "a"}},
		{{"z", "a"}, {"y", "b"}, {"x", "c"}},
		{{"a", "m"}, {"m", "b"}, {"b", "z"}},
		{{"z", "m"}, {"m", "b"}, {"b", "a"}},
		{{"a", "b", "c", "d"}, {"a", "x", "d"}, {"x", "y"}, {"q"}},
		{{"d", "e"}, {"c", "e"}, {"b", "e"}, {"a", "e"}},
		{{"e", "d"}, {"e", "c"}, {"e", "b"}, {"e", "a"}},
		{{"a", "b", "c"}, {"a", "b", "d"}, {"a", "b", "e"}},
		{{"m", "k"}, {"k", "z"}, {"a", "z"}, {"l", "a"}},
		// Contradictions of two, three and four names.
		{{"b", "a"}, {"a", "b"}, {"c"}},
		{{"a", "b"}, {"b", "a"}, {"c"}},
		{{"z", "b", "a"}, {"a", "b"}, {"c"}},
		{{"c", "b"}, {"b", "a"}, {"a", "c"}},
		{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"z", "y"}},
		{{"d", "a"}, {"a", "c"}, {"c", "b"}, {"b", "d"}},
		{{"z", "y"}, {"y", "x"}, {"x", "z"}, {"b", "a"}},
		{{"first", "b", "a"}, {"a", "b", "last"}},
		{{"b", "m", "a"}, {"a", "m", "b"}, {"c"}},
		// The same edge from many lists counts once.
		{{"b", "a"}, {"b", "a"}, {"b", "a"}, {"c"}},
		{{"b", "c", "a"}, {"b", "c"}, {"c", "a"}, {"d", "a"}},
		// Only neighbours make an edge: b before a is lost without x between.
		{{"b", "x", "a"}, {"a", "c"}},
		{{"b", "x", "a"}, {"x", "c"}},
		// A name more than once in a list.
		{{"a", "a"}},
		{{"a", "a"}, {"a"}},
		{{"b", "b", "a"}},
		{{"b", "a", "b"}},
		{{"b", "a", "b"}, {"b", "a"}},
		{{"b", "a", "b", "a"}, {"c"}},
		{{"c", "b", "c"}, {"a"}},
		{{"b", "a", "a"}, {"c", "b"}},
		{{"b", "b"}, {"c", "a"}},
		{{"a", "b", "c", "a"}, {"a", "b", "c", "d"}},
		// Byte order, not the order of an alphabet.
		{{"b"}, {"B"}, {"a"}, {"A"}, {"_"}, {"-"}, {"."}, {"0"}},
		{{"a.b"}, {"a-b"}, {"ab"}, {"a"}, {"a/b"}},
		{{"v1"}, {"v10"}, {"v2"}, {"v1beta1"}, {"v1alpha1"}},
		{{"é"}, {"z"}, {"e"}, {"É"}},
		{{"\uffff"}, {"\U00010000"}, {"\ue000"}},
		// Long chains.
		{chain(1, 30, 1)},
		{backwards},
		{backwards, {"n31"}},
		{chain(1, 30, 2), chain(2, 30, 2)},
		{chain(1, 30, 1), backwards},
		{chain(1, 29, 1), backwards[:29]},
		{chain(1, 10, 1), chain(10, 20, 1), chain(20, 30, 1)},
		{chain(20, 30, 1), chain(10, 20, 1), chain(1, 10, 1)},
		{chain(20, 30, 1), chain(10, 20, 1), chain(1, 10, 1), {"n30", "n01"}},
		{chain(1, 30, 3), chain(1, 30, 5), chain(1, 30, 7)},
		// Groups as servers list them.
		{
			{"apiregistration.k8s.io", "events.k8s.io", "apps", "batch", "policy"},
			{"apiregistration.k8s.io", "apps", "events.k8s.io", "batch", "resource.k8s.io"},
		},
		{
			{"apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "batch"},
			{"apiregistration.k8s.io", "apps", "authentication.k8s.io", "batch", "storage.k8s.io"},
			{"apiregistration.k8s.io", "events.k8s.io", "batch", "internal.apiserver.k8s.io"},
		},
		{{"v2", "v1"}, {"v1", "v1beta1"}},
		{{"v1", "v1beta1"}, {"v2", "v1"}, {"v1alpha1"}},
	}
}

func randomOrders() [][][]string {
	r := &random{state: 20360401}
	pool := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	var cases [][][]string
	for n := range 180 {
		lists := make([][]string, r.between(2, 8))
		shared := sample(r, pool, r.between(3, len(pool)))
		for i := range lists {
			switch n % 3 {
			case 0: // each list follows one common order
				lists[i] = some(r, shared, r.between(20, 70))
			case 1: // a common order, now and then with two neighbours swapped
				lists[i] = some(r, shared, r.between(20, 70))
				if len(lists[i]) > 1 && r.chance(15) {
					j := r.below(len(lists[i]) - 1)
					lists[i][j], lists[i][j+1] = lists[i][j+1], lists[i][j]
				}
			case 2: // any order, sometimes with a name twice
				lists[i] = sample(r, shared, r.between(0, 10))
				if n%4 == 0 && len(lists[i]) > 0 && len(lists[i]) < 10 && r.chance(30) {
					lists[i] = append(lists[i], pick(r, lists[i]))
				}
			}
			if len(lists[i]) > 10 {
				lists[i] = lists[i][:10]
			}
		}
		cases = append(cases, lists)
	}
	return cases
}
