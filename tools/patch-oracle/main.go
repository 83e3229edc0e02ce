// Command patch-oracle writes down what Kubernetes' own packages make of patches
// and applies, as fixtures for the tests of the in-memory API server.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
)

const (
	regenerate = "cd tools/patch-oracle && go run . ../../crates/mvp-apiserver/tests/fixtures/patches"
	kubernetes = "k8s.io/kubernetes@v1.36.4"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: patch-oracle OUTPUT-DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "patch-oracle:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	documents, err := openAPI()
	if err != nil {
		return err
	}
	schemas, err := neededSchemas(documents)
	if err != nil {
		return err
	}
	if err := writeLines(dir, "schemas.json", []any{schemas}); err != nil {
		return err
	}
	objects, err := os.ReadFile("inputs/objects.json")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "objects.json"), objects, 0o644); err != nil {
		return err
	}
	patches, err := patchRecords(objects)
	if err != nil {
		return err
	}
	if err := writeLines(dir, "patches.jsonl", patches); err != nil {
		return err
	}
	applies, err := applySequences(schemas)
	if err != nil {
		return err
	}
	if err := writeLines(dir, "applies.jsonl", applies); err != nil {
		return err
	}
	provenance, err := encode(map[string]any{
		"command": regenerate,
		"go":      runtime.Version(),
		"modules": modules(),
		"schemas": kubernetes + " api/openapi-spec/v3, without descriptions",
		"counts":  map[string]int{"patches.jsonl": len(patches), "applies.jsonl": len(applies)},
	}, "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "provenance.json"), provenance, 0o644)
}

// openAPI reads the recorded OpenAPI v3 schemas of the release. The module is
// downloaded, not built.
func openAPI() (map[string]json.RawMessage, error) {
	text, err := exec.Command("go", "mod", "download", "-json", kubernetes).Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", kubernetes, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	for _, name := range []string{"api__v1", "apis__apps__v1", "apis__policy__v1"} {
		path := filepath.Join(module.Dir, "api/openapi-spec/v3", name+"_openapi.json")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var document struct {
			Components struct {
				Schemas map[string]json.RawMessage `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &document); err != nil {
			return nil, err
		}
		for name, schema := range document.Components.Schemas {
			all[name] = schema
		}
	}
	return all, nil
}

// roots are the kinds of the fixtures and the names of their schemas.
var roots = map[string]string{
	"Deployment":          "io.k8s.api.apps.v1.Deployment",
	"Pod":                 "io.k8s.api.core.v1.Pod",
	"Service":             "io.k8s.api.core.v1.Service",
	"ConfigMap":           "io.k8s.api.core.v1.ConfigMap",
	"PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
}

// neededSchemas are the roots and all that they refer to, without descriptions.
func neededSchemas(documents map[string]json.RawMessage) (map[string]any, error) {
	needed := map[string]any{}
	var visit func(name string) error
	var walk func(node any) error
	walk = func(node any) error {
		switch node := node.(type) {
		case map[string]any:
			if text, ok := node["description"].(string); ok && text != "" {
				delete(node, "description")
			}
			if reference, ok := node["$ref"].(string); ok {
				if err := visit(filepath.Base(reference)); err != nil {
					return err
				}
			}
			for _, child := range node {
				if err := walk(child); err != nil {
					return err
				}
			}
		case []any:
			for _, child := range node {
				if err := walk(child); err != nil {
					return err
				}
			}
		}
		return nil
	}
	visit = func(name string) error {
		if _, done := needed[name]; done {
			return nil
		}
		var node any
		if err := json.Unmarshal(documents[name], &node); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		needed[name] = node
		return walk(node)
	}
	for _, name := range roots {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

func writeLines[T any](dir, name string, records []T) error {
	var lines bytes.Buffer
	for _, record := range records {
		line, err := encode(record, "")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		lines.Write(line)
	}
	return os.WriteFile(filepath.Join(dir, name), lines.Bytes(), 0o644)
}

// encode renders one value and a newline, leaving <, > and & as they are.
func encode(value any, indent string) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// modules lists the versions of the modules whose answers are recorded.
func modules() map[string]string {
	versions := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		switch module.Path {
		case "gopkg.in/evanphx/json-patch.v4", "k8s.io/api", "k8s.io/apimachinery",
			"sigs.k8s.io/structured-merge-diff/v6":
			versions[module.Path] = module.Version
		}
	}
	return versions
}
