package main

import (
	"bufio"
	_ "embed"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var (
	//go:embed inputs/requests.txt
	requestInputs string
	//go:embed inputs/field-selectors.txt
	fieldSelectorInputs string
	//go:embed inputs/label-selectors.txt
	labelSelectorInputs string
)

type requestRecord struct {
	Method string       `json:"method"`
	Target string       `json:"target"`
	Error  string       `json:"error"`
	Info   *requestInfo `json:"info,omitempty"`
	Latin1 bool         `json:"latin1,omitempty"`
}

type requestInfo struct {
	ResourceRequest bool     `json:"resource_request"`
	Path            string   `json:"path"`
	Verb            string   `json:"verb"`
	Prefix          string   `json:"prefix"`
	Group           string   `json:"group"`
	Version         string   `json:"version"`
	Namespace       string   `json:"namespace"`
	Resource        string   `json:"resource"`
	Subresource     string   `json:"subresource"`
	Name            string   `json:"name"`
	Parts           []string `json:"parts"`
}

type requestLine struct{ method, target string }

// requestRecords answers every distinct request line, in order of first
// appearance.
func requestRecords() []requestRecord {
	factory := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	seen := map[requestLine]bool{}
	var records []requestRecord
	for _, line := range requestLines() {
		if !seen[line] {
			seen[line] = true
			records = append(records, answerRequest(factory, line))
		}
	}
	return records
}

func answerRequest(factory *request.RequestInfoFactory, line requestLine) requestRecord {
	record := requestRecord{Method: line.method, Target: line.target}
	head := line.method + " " + line.target + " HTTP/1.1\r\nHost: x\r\n\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		record.Error = "malformed: " + err.Error()
	} else {
		info, err := factory.NewRequestInfo(req)
		if err != nil {
			record.Error = "requestinfo: " + err.Error()
		}
		record.Info = &requestInfo{
			ResourceRequest: info.IsResourceRequest,
			Path:            info.Path,
			Verb:            info.Verb,
			Prefix:          info.APIPrefix,
			Group:           info.APIGroup,
			Version:         info.APIVersion,
			Namespace:       info.Namespace,
			Resource:        info.Resource,
			Subresource:     info.Subresource,
			Name:            info.Name,
			Parts:           append([]string{}, info.Parts...),
		}
	}
	record.escape()
	return record
}

// escape switches the record to one character per byte if it has to.
func (record *requestRecord) escape() {
	texts := []*string{&record.Target, &record.Error}
	if i := record.Info; i != nil {
		texts = append(texts, &i.Path, &i.Verb, &i.Prefix, &i.Group, &i.Version,
			&i.Namespace, &i.Resource, &i.Subresource, &i.Name)
		for p := range i.Parts {
			texts = append(texts, &i.Parts[p])
		}
	}
	for _, text := range texts {
		record.Latin1 = record.Latin1 || anyNotUTF8(*text)
	}
	if record.Latin1 {
		for _, text := range texts {
			*text = latin1(*text)
		}
	}
}

func requestLines() []requestLine {
	var lines []requestLine
	add := func(method, target string) {
		lines = append(lines, requestLine{method, target})
	}

	for _, line := range inputLines(requestInputs) {
		method, target, _ := strings.Cut(line, " ")
		add(method, unquote(target))
	}

	const list = "/api/v1/namespaces/default/pods?fieldSelector="
	for _, selector := range inputLines(fieldSelectorInputs) {
		add("GET", list+url.QueryEscape(unquote(selector)))
	}
	for _, selector := range inputLines(labelSelectorInputs) {
		add("GET", list+"metadata.name%3Dweb&labelSelector="+url.QueryEscape(unquote(selector)))
	}

	for _, target := range longTargets() {
		add("GET", target)
	}

	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	for _, target := range templates() {
		for _, method := range methods {
			add(method, target)
		}
	}
	return lines
}

// longTargets are the ones nobody wants to see in a text file. Go's query
// parser gives up on more than a fixed number of parameters, so both sides of
// that border are here.
func longTargets() []string {
	name := strings.Repeat("n", 8192)
	return []string{
		"/api/v1/pods/" + name,
		"/api/v1/pods/" + strings.Repeat("a/", 500),
		"/api/v1/pods" + strings.Repeat("/", 300) + "web",
		"/api/v1/pods" + strings.Repeat("/", 300),
		"/api/v1/pods?" + strings.Repeat("x=y&", 500) + "watch=1",
		"/api/v1/pods?watch=1&x=" + name,
		"/api/v1/pods?watch=1" + strings.Repeat("&", 9999),
		"/api/v1/pods?watch=1" + strings.Repeat("&", 10000),
		"/api/v1/pods?fieldSelector=" + strings.Repeat("a%3Db,", 500) + "metadata.name%3Dweb",
	}
}

// templates are crossed with the methods.
func templates() []string {
	roots := []string{"/api/v1", "/apis/apps/v1"}
	tails := []string{
		"/namespaces",
		"/namespaces/ns",
		"/namespaces/ns/status",
		"/namespaces/ns/finalize",
		"/namespaces/ns/things",
		"/namespaces/ns/things?watch=1",
		"/namespaces/ns/things/one",
		"/namespaces/ns/things/one/status",
		"/namespaces/ns/things/one/proxy/a/b",
		"/things",
		"/things?watch=true&fieldSelector=metadata.name%3Done",
		"/things?fieldSelector=metadata.name%3Done",
		"/things/one",
		"/watch/things",
		"/watch/namespaces/ns/things/one",
		"/proxy/namespaces/ns/things/one/a",
	}
	var targets []string
	for _, root := range roots {
		for _, tail := range tails {
			targets = append(targets, root+tail)
		}
	}
	return append(targets, "/", "/version", "/api", "/apis", "/apis/apps", "/apis/apps/v1")
}
