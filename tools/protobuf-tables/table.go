package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// special are the types whose JSON does not have the shape of their protobuf.
var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():                                  "T",
	reflect.TypeFor[meta.MicroTime]():                             "U",
	reflect.TypeFor[meta.Duration]():                              "D",
	reflect.TypeFor[resource.Quantity]():                          "Q",
	reflect.TypeFor[intstr.IntOrString]():                         "I",
	reflect.TypeFor[runtime.RawExtension]():                       "R",
	reflect.TypeFor[meta.FieldsV1]():                              "R",
	reflect.TypeFor[apiextensions.JSON]():                         "R",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "A",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "B",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "S",
}

type decodable interface{ Unmarshal([]byte) error }

// walk numbers the messages in the order in which it meets them.
type walk struct {
	numbers map[reflect.Type]int
	lines   []string
}

// table describes all kinds of a scheme and the messages that they reach.
func table(types *runtime.Scheme) []byte {
	w := walk{numbers: map[reflect.Type]int{}}
	kinds := map[string][]string{}
	for gvk, goType := range types.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || !served(goType) {
			continue
		}
		kinds[gvk.GroupVersion().String()] = append(kinds[gvk.GroupVersion().String()], gvk.Kind)
	}
	var out bytes.Buffer
	for _, apiVersion := range sorted(kinds) {
		group := kinds[apiVersion]
		slices.Sort(group)
		out.WriteString("K " + apiVersion)
		for _, kind := range group {
			goType := types.AllKnownTypes()[gvkOf(apiVersion, kind)]
			fmt.Fprintf(&out, " %s=%d", kind, w.message(goType))
		}
		out.WriteByte('\n')
	}
	for _, line := range w.lines {
		out.WriteString("M" + line + "\n")
	}
	return out.Bytes()
}

// served tells whether a kind can be the body of a request.
func served(goType reflect.Type) bool {
	_, encoded := reflect.New(goType).Interface().(decodable)
	own := goType.PkgPath() == reflect.TypeFor[meta.Time]().PkgPath()
	options := goType == reflect.TypeFor[meta.DeleteOptions]()
	list := strings.HasSuffix(goType.Name(), "List")
	return encoded && (options || !own) && !list
}

func (w *walk) message(goType reflect.Type) int {
	if number, known := w.numbers[goType]; known {
		return number
	}
	number := len(w.lines)
	w.numbers[goType] = number
	w.lines = append(w.lines, "")
	w.must(goType.Kind() == reflect.Struct, goType, "is no struct")
	_, custom := reflect.New(goType).Interface().(json.Marshaler)
	w.must(!custom, goType, "has JSON of its own")
	var line strings.Builder
	for i := range goType.NumField() {
		line.WriteString(w.field(goType, goType.Field(i)))
	}
	w.lines[number] = line.String()
	return number
}

// field is ` number:name:type`, then flags: `?` omitempty, `0` omitzero, `^` inline.
func (w *walk) field(in reflect.Type, field reflect.StructField) string {
	tag := field.Tag.Get("protobuf")
	if tag == "" {
		return ""
	}
	parts := strings.Split(tag, ",")
	_, err := strconv.Atoi(parts[1])
	w.must(err == nil, in, tag)
	names := strings.Split(field.Tag.Get("json"), ",")
	name, flags := names[0], ""
	w.must(name != "-", in, field.Name+" has no JSON")
	for _, option := range names[1:] {
		switch option {
		case "omitempty":
			flags += "?"
		case "omitzero":
			flags += "0"
		case "inline":
		default:
			w.must(false, in, option)
		}
	}
	if name == "" {
		w.must(field.Anonymous && field.Type.Kind() == reflect.Struct, in, field.Name+" has no name")
		flags = "^"
	}
	return fmt.Sprintf(" %s:%s:%s%s", parts[1], name, w.kind(in, field.Type), flags)
}

// kind is `*` for a pointer, `[` for a list or `{` for a map, then the type of
// the value: a letter, or the number of a message.
func (w *walk) kind(in, goType reflect.Type) string {
	if code, known := special[goType]; known {
		if strings.Contains("ABS", code) {
			code += strconv.Itoa(w.message(reflect.TypeFor[apiextensions.JSONSchemaProps]()))
		}
		return code
	}
	_, wrapped := reflect.New(goType).Interface().(decodable)
	switch goType.Kind() {
	case reflect.Pointer:
		return "*" + w.single(in, goType.Elem())
	case reflect.Slice:
		switch {
		case goType.Elem().Kind() == reflect.Uint8:
			return "y"
		case wrapped:
			w.must(goType.Elem().Kind() == reflect.String, in, goType.String())
			return "W"
		}
		return "[" + w.single(in, goType.Elem())
	case reflect.Map:
		w.must(goType.Key().Kind() == reflect.String, in, goType.String())
		w.must(!wrapped, in, goType.String())
		return "{" + w.single(in, goType.Elem())
	case reflect.String:
		return "s"
	case reflect.Bool:
		return "b"
	case reflect.Int32:
		return "i"
	case reflect.Int64:
		return "l"
	case reflect.Float64:
		return "d"
	case reflect.Struct:
		return strconv.Itoa(w.message(goType))
	}
	w.must(false, in, goType.String())
	return ""
}

// single is the type of one value: neither a pointer nor a list nor a map.
func (w *walk) single(in, goType reflect.Type) string {
	kind := w.kind(in, goType)
	w.must(!strings.ContainsAny(kind[:1], "*[{"), in, goType.String())
	return kind
}

func (w *walk) must(holds bool, in reflect.Type, what string) {
	if !holds {
		check(fmt.Errorf("%s: %s", in, what))
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
