package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// patchRecord is a patch and its result, or the code and text of the error that
// k8s.io/apiserver/pkg/endpoints/handlers makes of it.
type patchRecord struct {
	Name   string          `json:"name"`
	Object string          `json:"object"`
	Type   string          `json:"type"`
	Patch  json.RawMessage `json:"patch"`
	Result json.RawMessage `json:"result,omitempty"`
	Code   int             `json:"code,omitempty"`
	Error  string          `json:"error,omitempty"`
}

var types = map[string]any{
	"deployment": &appsv1.Deployment{},
	"pod":        &corev1.Pod{},
	"service":    &corev1.Service{},
	"configmap":  &corev1.ConfigMap{},
	"budget":     &policyv1.PodDisruptionBudget{},
}

func patchRecords(objectsText []byte) ([]patchRecord, error) {
	var objects map[string]json.RawMessage
	if err := json.Unmarshal(objectsText, &objects); err != nil {
		return nil, err
	}
	cases, err := os.ReadFile("inputs/patches.txt")
	if err != nil {
		return nil, err
	}
	var records []patchRecord
	for _, line := range strings.Split(string(cases), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, " | ", 4)
		if len(parts) != 4 {
			return nil, fmt.Errorf("malformed case: %s", line)
		}
		record := patchRecord{Name: parts[0], Object: parts[1], Type: parts[2], Patch: json.RawMessage(parts[3])}
		original, found := objects[record.Object]
		if !found {
			return nil, fmt.Errorf("unknown object: %s", line)
		}
		record.apply(original)
		records = append(records, record)
	}
	return records, nil
}

func (r *patchRecord) apply(original []byte) {
	var result []byte
	var err error
	switch r.Type {
	case "strategic":
		result, err = r.strategic(original)
		if err != nil {
			r.Code, r.Error = strategicCode(err), err.Error()
		}
	case "merge":
		result, err = jsonpatch.MergePatch(original, r.Patch)
		if err != nil {
			r.Code, r.Error = 400, err.Error()
		}
	case "json":
		patch, err := jsonpatch.DecodePatch(r.Patch)
		if err != nil {
			r.Code, r.Error = 400, err.Error()
			return
		}
		result, err = patch.Apply(original)
		if err != nil {
			r.Code, r.Error = 422, err.Error()
		}
	}
	r.Result = result
}

func (r *patchRecord) strategic(original []byte) ([]byte, error) {
	var object, patch map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(original, &object); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Patch, &patch); err != nil {
		return nil, err
	}
	result, err := strategicpatch.StrategicMergeMapPatch(object, patch, types[r.Object])
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// strategicCode is the code that the handler answers an error with.
func strategicCode(err error) int {
	switch err {
	case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList,
		mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList,
		mergepatch.ErrUnsupportedStrategicMergePatchFormat:
		return 400
	case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
		return 422
	default:
		return 500
	}
}
