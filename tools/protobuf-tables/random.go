package main

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// large are kinds whose random objects would be most of the fixtures.
var large = []string{
	"DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet",
	"CronJob", "Job", "PodTemplate", "PodTemplateSpec",
}

// random fills one object of every kind, the same ones in every run.
func random(types *runtime.Scheme) []runtime.Object {
	var objects []runtime.Object
	known := types.AllKnownTypes()
	names := map[string]reflect.Type{}
	for gvk, goType := range known {
		if gvk.Version != runtime.APIVersionInternal && served(goType) && !slices.Contains(large, gvk.Kind) {
			names[gvk.GroupVersion().String()+" "+gvk.Kind] = goType
		}
	}
	seen := map[reflect.Type]bool{}
	for i, name := range sorted(names) {
		goType := names[name]
		if seen[goType] {
			continue
		}
		seen[goType] = true
		object := reflect.New(goType).Interface().(runtime.Object)
		filler(int64(i)).Fill(object)
		var apiVersion, kind string
		_, err := fmt.Sscan(name, &apiVersion, &kind)
		check(err)
		object.GetObjectKind().SetGroupVersionKind(gvkOf(apiVersion, kind))
		objects = append(objects, object)
	}
	return objects
}

func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.6).NumElements(1, 2).MaxDepth(14).Funcs(
		func(s *string, c randfill.Continue) { *s = fmt.Sprintf("t%d", c.Intn(100)) },
		func(t *meta.Time, c randfill.Continue) { *t = meta.Unix(moment(c), 0) },
		func(t *meta.MicroTime, c randfill.Continue) {
			*t = meta.NewMicroTime(time.Unix(moment(c), c.Int63n(1e9)))
		},
		func(d *meta.Duration, c randfill.Continue) { d.Duration = duration(c) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse([]string{"0", "1", "100m", "1536Mi", "2e3", "1.5", "-3"}[c.Intn(7)])
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = []intstr.IntOrString{intstr.FromInt32(c.Int31n(99)), intstr.FromString("25%"), {}}[c.Intn(3)]
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = raw(c) },
		func(f *meta.FieldsV1, c randfill.Continue) { *f = *meta.NewFieldsV1(string(raw(c))) },
		func(j *apiextensions.JSON, c randfill.Continue) { j.Raw = raw(c) },
		func(o *apiextensions.JSONSchemaPropsOrArray, c randfill.Continue) {
			one := apiextensions.JSONSchemaProps{Type: "string"}
			*o = []apiextensions.JSONSchemaPropsOrArray{
				{Schema: &one}, {JSONSchemas: []apiextensions.JSONSchemaProps{one, one}},
			}[c.Intn(2)]
		},
		func(o *apiextensions.JSONSchemaPropsOrBool, c randfill.Continue) {
			*o = []apiextensions.JSONSchemaPropsOrBool{
				{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}, {Allows: true}, {},
			}[c.Intn(3)]
		},
		func(o *apiextensions.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			*o = []apiextensions.JSONSchemaPropsOrStringArray{
				{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}, {Property: []string{"a", "b"}}, {},
			}[c.Intn(3)]
		},
	)
}

// moment is a second between the years 1 and 9999, often an early one.
func moment(c randfill.Continue) int64 {
	return []int64{0, -1, 951_782_399, 1_709_164_800, -62_135_596_800, 253_402_300_799, c.Rand.Int63n(4e9)}[c.Intn(7)]
}

func duration(c randfill.Continue) time.Duration {
	return []time.Duration{0, 1, 1500, 2_500_000, time.Second, 90 * time.Minute, -time.Hour, 1<<63 - 1, -1 << 63,
		time.Duration(rand.New(c.Rand).Int63n(1e15))}[c.Intn(10)]
}

func raw(c randfill.Continue) []byte {
	return [][]byte{[]byte(`{"f:a":{"n":1}}`), []byte(`[1,"x",null]`), []byte(`"text"`), nil}[c.Intn(4)]
}
