// protobuf-tables prints how Kubernetes' types are encoded in protobuf, and
// examples that Kubernetes encoded. See README.md.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: protobuf-tables TABLE_FOLDER FIXTURE_FOLDER")
		os.Exit(2)
	}
	types := runtime.NewScheme()
	check(scheme.AddToScheme(types))
	check(apiextensions.AddToScheme(types))
	check(apiregistration.AddToScheme(types))

	write(filepath.Join(os.Args[1], "protobuf.gz"), table(types))
	write(filepath.Join(os.Args[2], "protobuf.jsonl.gz"), fixtures(types))
}

// write stores a compressed file. Two runs write the same bytes.
func write(path string, content []byte) {
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	check(err)
	_, err = writer.Write(content)
	check(err)
	check(writer.Close())
	check(os.WriteFile(path, compressed.Bytes(), 0o644))
	fmt.Printf("%s: %d bytes, %d compressed\n", path, len(content), compressed.Len())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
