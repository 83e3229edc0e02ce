package main

import (
	_ "embed"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

//go:embed inputs/accept.txt
var acceptInputs string

const (
	betaEmulation = "1.34"
	betaRun       = "AggregatedDiscoveryRemoveBetaType=false at emulation version " + betaEmulation +
		"; from 1.35 on the gate is locked to its default"
)

type negotiateRecord struct {
	Accept     string           `json:"accept"`
	Aggregated aggregatedAnswer `json:"aggregated"`
	Legacy     legacyAnswer     `json:"legacy"`
	Latin1     bool             `json:"latin1,omitempty"`
}

type aggregatedAnswer struct {
	OK      bool   `json:"ok"`
	Type    string `json:"type"`
	Group   string `json:"g"`
	Version string `json:"v"`
	Kind    string `json:"as"`
	Profile string `json:"profile"`
}

type legacyAnswer struct {
	OK   bool   `json:"ok"`
	Type string `json:"type"`
}

func negotiateRecords() []negotiateRecord {
	serializers := discoverySerializers()
	var records []negotiateRecord
	for _, accept := range acceptHeaders() {
		record := negotiateRecord{Accept: accept}

		options, ok := negotiation.NegotiateMediaTypeOptions(accept, serializers, aggregated.DiscoveryEndpointRestrictions)
		record.Aggregated = aggregatedAnswer{OK: ok, Type: options.Accepted.MediaType, Profile: options.Profile}
		if options.Convert != nil {
			record.Aggregated.Group = options.Convert.Group
			record.Aggregated.Version = options.Convert.Version
			record.Aggregated.Kind = options.Convert.Kind
		}

		options, ok = negotiation.NegotiateMediaTypeOptions(accept, serializers, negotiation.DefaultEndpointRestrictions)
		record.Legacy = legacyAnswer{OK: ok, Type: options.Accepted.MediaType}

		// Group, version and kind are fixed strings once a clause is accepted.
		if anyNotUTF8(record.Accept, record.Aggregated.Profile) {
			record.Latin1 = true
			record.Accept = latin1(record.Accept)
			record.Aggregated.Profile = latin1(record.Aggregated.Profile)
		}
		records = append(records, record)
	}
	return records
}

func acceptHeaders() []string {
	var headers []string
	for _, line := range inputLines(acceptInputs) {
		headers = append(headers, unquote(line))
	}

	const discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	headers = append(headers,
		strings.Repeat("text/html,", 500)+discovery,
		strings.Repeat("text/html;q=0.5,", 300)+discovery+";q=0.4,application/yaml;q=0.3",
		discovery+strings.Repeat(";x=y", 1000),
		"application/json;x="+strings.Repeat("y", 8192),
		strings.Repeat(",", 2000)+"application/yaml",
	)

	// Orders of an unstable sort are easy to get wrong: many clauses, few
	// different qualities, and each clause recognisable by its profile.
	r := &random{state: 77}
	for range 24 {
		clauses := make([]string, r.between(2, 30))
		for i := range clauses {
			clauses[i] = discovery + ";profile=p" + string(rune('a'+i%26))
			switch r.below(10) {
			case 0:
				clauses[i] = "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=any"
			case 1:
				clauses[i] = "application/yaml"
			case 2:
				clauses[i] = "application/*"
			}
			if r.chance(70) {
				clauses[i] += ";q=" + pick(r, []string{"0.2", "0.5", "0.9"})
			}
		}
		headers = append(headers, strings.Join(clauses, ","))
	}
	return headers
}

// discoverySerializers is set up the way the discovery endpoint sets it up.
func discoverySerializers() []runtime.SerializerInfo {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme).SupportedMediaTypes()
}

func supportedMediaTypes() []string {
	var types []string
	for _, info := range discoverySerializers() {
		types = append(types, info.MediaType)
	}
	return types
}

// defaultGates reports the gates that bear on these answers.
func defaultGates() map[string]bool {
	gates := map[string]bool{}
	for _, gate := range []featuregate.Feature{
		features.AggregatedDiscoveryRemoveBetaType,
		features.CBORServingAndStorage,
		features.UnknownVersionInteroperabilityProxy,
	} {
		gates[string(gate)] = utilfeature.DefaultFeatureGate.Enabled(gate)
	}
	return gates
}

// allowBetaDiscovery makes the rest of the process answer as a server does that
// still serves apidiscovery.k8s.io/v2beta1.
func allowBetaDiscovery() error {
	gate := utilfeature.DefaultMutableFeatureGate.(featuregate.MutableVersionedFeatureGate)
	if err := gate.SetEmulationVersion(version.MustParse(betaEmulation)); err != nil {
		return err
	}
	return gate.Set(string(features.AggregatedDiscoveryRemoveBetaType) + "=false")
}
