package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
)

// applySequence is a sequence of writes of one object.
type applySequence struct {
	Name  string      `json:"name"`
	Kind  string      `json:"kind"`
	Steps []applyStep `json:"steps"`
}

// applyStep is a write, and the object after it or the error.
type applyStep struct {
	Operation string          `json:"operation"`
	Manager   string          `json:"manager"`
	Force     bool            `json:"force,omitempty"`
	Sent      json.RawMessage `json:"sent"`
	Live      json.RawMessage `json:"live,omitempty"`
	Managed   []managedEntry  `json:"managed,omitempty"`
	Error     string          `json:"error,omitempty"`
	Causes    []string        `json:"causes,omitempty"`
}

type managedEntry struct {
	Manager   string          `json:"manager"`
	Operation string          `json:"operation"`
	Timed     bool            `json:"timed"`
	Fields    json.RawMessage `json:"fields"`
}

var applyKinds = map[string]schema.GroupVersionKind{
	"Deployment": {Group: "apps", Version: "v1", Kind: "Deployment"},
	"Pod":        {Version: "v1", Kind: "Pod"},
	"Service":    {Version: "v1", Kind: "Service"},
	"ConfigMap":  {Version: "v1", Kind: "ConfigMap"},
	"Widget":     {Group: "example.com", Version: "v1", Kind: "Widget"},
}

func applySequences(schemas map[string]any) ([]*applySequence, error) {
	text, err := json.Marshal(schemas)
	if err != nil {
		return nil, err
	}
	var models map[string]*spec.Schema
	if err := json.Unmarshal(text, &models); err != nil {
		return nil, err
	}
	typed, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, err
	}
	input, err := os.ReadFile("inputs/applies.txt")
	if err != nil {
		return nil, err
	}
	var sequences []*applySequence
	var manager managedfieldstest.TestFieldManager
	for _, line := range strings.Split(string(input), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, " | ", 3)
		if len(parts) == 2 {
			kind, known := applyKinds[parts[1]]
			if !known {
				return nil, fmt.Errorf("unknown kind: %s", line)
			}
			converter := typed
			if parts[1] == "Widget" {
				converter = managedfields.NewDeducedTypeConverter()
			}
			manager = managedfieldstest.NewTestFieldManager(converter, kind)
			sequences = append(sequences, &applySequence{Name: parts[0], Kind: parts[1]})
			continue
		}
		sequence := sequences[len(sequences)-1]
		step := applyStep{Operation: strings.TrimSpace(parts[0]), Manager: parts[1]}
		if step.Operation == "force" {
			step.Operation, step.Force = "apply", true
		}
		if err := step.execute(manager, applyKinds[sequence.Kind], parts[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		sequence.Steps = append(sequence.Steps, step)
	}
	return sequences, nil
}

func (s *applyStep) execute(manager managedfieldstest.TestFieldManager, kind schema.GroupVersionKind, text string) error {
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &fields); err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(kind)
	var err error
	if s.Sent, err = json.Marshal(object.Object); err != nil {
		return err
	}
	if s.Operation == "apply" {
		err = manager.Apply(object, s.Manager, s.Force)
	} else {
		err = manager.Update(object, s.Manager)
	}
	if err != nil {
		s.Error = err.Error()
		if status, ok := err.(*errors.StatusError); ok {
			for _, cause := range status.ErrStatus.Details.Causes {
				s.Causes = append(s.Causes, cause.Message+": "+cause.Field)
			}
			sort.Strings(s.Causes)
		}
		return nil
	}
	for _, entry := range manager.ManagedFields() {
		s.Managed = append(s.Managed, managedEntry{
			Manager: entry.Manager, Operation: string(entry.Operation),
			Timed: entry.Time != nil, Fields: entry.FieldsV1.Raw,
		})
	}
	sort.Slice(s.Managed, func(i, j int) bool {
		p, q := s.Managed[i], s.Managed[j]
		return p.Operation+p.Manager < q.Operation+q.Manager
	})
	live := manager.Live().(*unstructured.Unstructured).DeepCopy()
	live.SetManagedFields(nil)
	s.Live, err = json.Marshal(live.Object)
	return err
}
