package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
)

type group = apidiscoveryv2.APIGroupDiscovery

type mergeRecord struct {
	Name     string                     `json:"name"`
	Servers  []serverRecord             `json:"servers"`
	Merged   json.RawMessage            `json:"merged"`
	Disagree bool                       `json:"disagree,omitempty"`
	MergedBy map[string]json.RawMessage `json:"merged_by,omitempty"`
}

type serverRecord struct {
	ID    string          `json:"id"`
	Items json.RawMessage `json:"items"`
}

// mergeCase is a named set of servers, the first one local.
type mergeCase struct {
	name    string
	servers []serverRecord
}

func mergeRecords() []mergeRecord {
	var records []mergeRecord
	for _, c := range append(mergeCases(), randomMerges()...) {
		records = append(records, answerMerge(c))
	}
	return records
}

// answerMerge merges once from the standpoint of each server. "merged" is the
// first server's answer; the others' are added when they are not the same.
func answerMerge(c mergeCase) mergeRecord {
	record := mergeRecord{Name: c.name, Servers: c.servers}
	all := map[string]json.RawMessage{}
	for _, local := range c.servers {
		// The documents are parsed anew each time: what a merge sees is what a
		// reader of the fixture sees, and no merge can touch another's input.
		var localItems []group
		peers := map[string][]group{}
		for _, server := range c.servers {
			if server.ID == local.ID {
				localItems = parseGroups(server.Items)
			} else {
				peers[server.ID] = parseGroups(server.Items)
			}
		}
		if len(peers) != len(c.servers)-1 {
			panic("two servers with one identity in " + c.name)
		}
		merged := groupsJSON(aggregated.TestMergeResources(local.ID, localItems, peers))
		all[local.ID] = merged
		if record.Merged == nil {
			record.Merged = merged
		}
		if !bytes.Equal(record.Merged, merged) {
			record.Disagree = true
		}
	}
	if record.Disagree {
		record.MergedBy = all
	}
	return record
}

func parseGroups(text []byte) []group {
	var groups []group
	if err := json.Unmarshal(text, &groups); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return groups
}

func groupsJSON(groups []group) json.RawMessage {
	text, err := json.Marshal(groups)
	if err != nil {
		panic(err)
	}
	return text
}
