// Prints in which release each API of Kubernetes was introduced, deprecated and removed, as its own
// types say.
//
// The argument is the file to write.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/scheme"
)

type introduced interface {
	APILifecycleIntroduced() (major, minor int)
}
type deprecated interface {
	APILifecycleDeprecated() (major, minor int)
}
type removed interface {
	APILifecycleRemoved() (major, minor int)
}
type replacement interface {
	APILifecycleReplacement() schema.GroupVersionKind
}

type api struct {
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Kind        string `json:"kind"`
	Introduced  string `json:"introduced"`
	Deprecated  string `json:"deprecated,omitempty"`
	Removed     string `json:"removed,omitempty"`
	Replacement string `json:"replacement,omitempty"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: api-lifecycle FILE")
	}
	known := map[schema.GroupVersionKind]api{}
	for _, scheme := range []*runtime.Scheme{kubernetes.Scheme, apiextensions.Scheme, aggregator.Scheme} {
		for kind := range scheme.AllKnownTypes() {
			if found, ok := lifecycle(scheme, kind); ok {
				known[kind] = found
			}
		}
	}
	if len(known) < 50 {
		log.Fatalf("only %d kinds have a lifecycle", len(known))
	}
	if err := write(os.Args[1], known); err != nil {
		log.Fatal(err)
	}
}

// The lifecycle of a kind that is deprecated or removed at some time.
func lifecycle(scheme *runtime.Scheme, kind schema.GroupVersionKind) (api, bool) {
	object, err := scheme.New(kind)
	if err != nil || kind.Version == runtime.APIVersionInternal || meta.IsListType(object) {
		return api{}, false
	}
	from, ok := object.(introduced)
	if !ok {
		return api{}, false
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	found := api{
		Group:      kind.Group,
		Version:    kind.Version,
		Resource:   plural.Resource,
		Kind:       kind.Kind,
		Introduced: release(from.APILifecycleIntroduced()),
	}
	if until, ok := object.(deprecated); ok {
		found.Deprecated = release(until.APILifecycleDeprecated())
	}
	if until, ok := object.(removed); ok {
		found.Removed = release(until.APILifecycleRemoved())
	}
	if by, ok := object.(replacement); ok {
		instead := by.APILifecycleReplacement()
		found.Replacement = fmt.Sprintf("%s/%s", instead.GroupVersion(), instead.Kind)
	}
	return found, found.Deprecated != "" || found.Removed != ""
}

func release(major, minor int) string {
	return fmt.Sprintf("%d.%d", major, minor)
}

// Writes one line for each API, in a fixed order.
func write(path string, known map[schema.GroupVersionKind]api) error {
	var all []api
	for _, one := range known {
		all = append(all, one)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.Group != b.Group {
			return a.Group < b.Group
		}
		if a.Version != b.Version {
			return a.Version < b.Version
		}
		return a.Kind < b.Kind
	})
	var lines []string
	for _, one := range all {
		line, err := json.Marshal(one)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	text := fmt.Sprintf("{\"release\":%q,\"apis\":[\n%s\n]}\n", packages(), strings.Join(lines, ",\n"))
	return os.WriteFile(path, []byte(text), 0o644)
}

// The release of Kubernetes whose packages these are: k8s.io/api v0.36.4 is that of 1.36.
func packages() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/api" {
				return "1." + strings.Split(module.Version, ".")[1]
			}
		}
	}
	log.Fatal("the version of k8s.io/api is not known")
	return ""
}
