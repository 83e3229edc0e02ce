// Command oracle writes down what Kubernetes' own packages answer to a set of
// inputs, as fixtures for the tests of the proxy.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const regenerate = "cd tools/oracle && go run . ../../crates/mvp-core/tests/fixtures/oracle"

type provenance struct {
	Command      string            `json:"command"`
	Go           string            `json:"go"`
	Modules      map[string]string `json:"modules"`
	Counts       map[string]int    `json:"counts"`
	MediaTypes   []string          `json:"media_types"`
	FeatureGates map[string]bool   `json:"feature_gates"`
	BetaRun      string            `json:"negotiate_beta"`
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: oracle OUTPUT-DIRECTORY [INPUT-DIRECTORY]")
		os.Exit(2)
	}
	// The packages log every query they cannot parse; that is wanted input here.
	klog.SetLogger(logr.Discard())
	if len(os.Args) == 3 {
		if err := readInputs(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	out := &output{dir: dir, counts: map[string]int{}}

	gates := defaultGates()
	write(out, "requests.jsonl", requestRecords())
	write(out, "order.jsonl", orderRecords())
	write(out, "merge.jsonl", mergeRecords())
	write(out, "negotiate.jsonl", negotiateRecords())
	// Last, for it changes the process's feature gates.
	if err := allowBetaDiscovery(); err != nil {
		return err
	}
	write(out, "negotiate-beta.jsonl", negotiateRecords())
	if out.err != nil {
		return out.err
	}

	p := provenance{
		Command:      regenerate,
		Go:           runtime.Version(),
		Modules:      modules(),
		Counts:       out.counts,
		MediaTypes:   supportedMediaTypes(),
		FeatureGates: gates,
		BetaRun:      betaRun,
	}
	text, err := encode(p, "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "provenance.json"), text, 0o644)
}

// readInputs takes requests and headers from other files than those in inputs:
// what the fuzz targets found.
func readInputs(dir string) error {
	for name, inputs := range map[string]*string{"requests.txt": &requestInputs, "accept.txt": &acceptInputs} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		*inputs = string(text)
	}
	return nil
}

// output remembers the first error, so that run reads as a list of files.
type output struct {
	dir    string
	counts map[string]int
	err    error
}

func write[T any](out *output, name string, records []T) {
	if out.err != nil {
		return
	}
	var lines bytes.Buffer
	for _, record := range records {
		line, err := encode(record, "")
		if err != nil {
			out.err = fmt.Errorf("%s: %w", name, err)
			return
		}
		lines.Write(line)
	}
	out.counts[name] = len(records)
	out.err = os.WriteFile(filepath.Join(out.dir, name), lines.Bytes(), 0o644)
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
	wanted := []string{
		"github.com/munnerz/goautoneg",
		"k8s.io/api",
		"k8s.io/apimachinery",
		"k8s.io/apiserver",
		"k8s.io/component-base",
	}
	versions := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, dep := range info.Deps {
		for _, path := range wanted {
			if dep.Path == path {
				versions[path] = dep.Version
			}
		}
	}
	return versions
}

// inputLines returns the lines of an input file without comments and blank
// lines.
func inputLines(text string) []string {
	var lines []string
	scanner := bufio.NewScanner(strings.NewReader(text))
	for scanner.Scan() {
		line := scanner.Text()
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
