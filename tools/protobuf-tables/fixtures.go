package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// fixture is an object as Kubernetes encodes it in protobuf, and the JSON that
// Kubernetes makes of these bytes.
type fixture struct {
	Name     string          `json:"name"`
	Protobuf string          `json:"protobuf"`
	JSON     json.RawMessage `json:"json"`
}

// fixtures are the objects of `commands`, and random ones of many kinds.
func fixtures(types *runtime.Scheme) []byte {
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	for _, object := range commands() {
		check(lines.Encode(encode(types, "command", object)))
	}
	for _, object := range random(types) {
		check(lines.Encode(encode(types, "random", object)))
	}
	return out.Bytes()
}

func encode(types *runtime.Scheme, name string, object runtime.Object) fixture {
	binary := protobuf.NewSerializer(types, types)
	text := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, types, types, kjson.SerializerOptions{})
	gvk := object.GetObjectKind().GroupVersionKind()
	if gvk.Empty() {
		kinds, _, err := types.ObjectKinds(object)
		check(err)
		gvk = kinds[0]
		object.GetObjectKind().SetGroupVersionKind(gvk)
	}
	encoded, err := runtime.Encode(binary, object)
	check(err)
	decoded, _, err := binary.Decode(encoded, nil, nil)
	check(err)
	decoded.GetObjectKind().SetGroupVersionKind(gvk)
	expected, err := runtime.Encode(text, decoded)
	check(err)
	return fixture{
		Name:     name + " " + gvk.GroupVersion().String() + " " + gvk.Kind,
		Protobuf: base64.StdEncoding.EncodeToString(encoded),
		JSON:     bytes.TrimSpace(expected),
	}
}

func gvkOf(apiVersion, kind string) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

func named(name string) meta.ObjectMeta {
	return meta.ObjectMeta{Name: name, Namespace: "default"}
}
