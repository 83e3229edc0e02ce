// A client as controllers are: a RESTMapper over discovery, shared informers, CRUD. It makes the
// object that it reads from standard input, and follows it to its end.
//
//	client-go KUBECONFIG NAMESPACE < object.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 20 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	object := &unstructured.Unstructured{}
	if err := json.NewDecoder(os.Stdin).Decode(&object.Object); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()

	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	kind := object.GroupVersionKind()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("the RESTMapper: %w", err)
	}
	// What controllers ask before they start an informer.
	listed, err := client.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		return fmt.Errorf("ServerResourcesForGroupVersion: %w", err)
	}
	found := false
	for _, resource := range listed.APIResources {
		found = found || resource.Name == mapping.Resource.Resource && resource.Kind == kind.Kind
	}
	if !found {
		return fmt.Errorf("%s is not among the resources of %s", kind.Kind, kind.GroupVersion())
	}
	if _, _, err := client.ServerGroupsAndResources(); err != nil {
		return fmt.Errorf("ServerGroupsAndResources: %w", err)
	}

	every, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	objects := every.Resource(mapping.Resource).Namespace(namespace)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(every, 0, namespace, nil)
	informer := factory.ForResource(mapping.Resource).Informer()
	events, err := follow(ctx, informer, object.GetName())
	if err != nil {
		return fmt.Errorf("the dynamic informer: %w", err)
	}
	typed := func(string) error { return nil }
	if kind.Group == "batch" && kind.Kind == "Job" {
		if typed, err = followJobs(ctx, config, namespace, object.GetName()); err != nil {
			return fmt.Errorf("the informer of Jobs: %w", err)
		}
	}
	see := func(what string) error { return errors.Join(events(what), typed(what)) }

	if _, err = objects.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := see("added"); err != nil {
		return err
	}
	if _, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if list, err := objects.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		return fmt.Errorf("list: %d, %w", len(list.Items), err)
	}
	patch := []byte(`{"metadata":{"labels":{"by":"client-go"}}}`)
	patched, err := objects.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	if err := see("updated"); err != nil {
		return err
	}
	patched.SetAnnotations(map[string]string{"by": "client-go"})
	if _, err := objects.Update(ctx, patched, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if err := see("updated"); err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	if err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := see("deleted"); err != nil {
		return err
	}
	if _, err := objects.Get(ctx, object.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get after delete: %v", err)
	}
	fmt.Println("mapped, informed, made, changed and deleted", kind.Kind)
	return nil
}

// Starts an informer, waits until it has synced, and gives a function that waits for its next word of
// an object.
func follow(ctx context.Context, informer cache.SharedIndexInformer, name string) (func(string) error, error) {
	events := make(chan string, 100)
	say := func(object any, what string) {
		if key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object); nameOf(key) == name {
			events <- what
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say(object, "added") },
		UpdateFunc: func(_, object any) { say(object, "updated") },
		DeleteFunc: func(object any) { say(object, "deleted") },
	})
	if err != nil {
		return nil, err
	}
	var trouble atomic.Value
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { trouble.Store(err.Error()) }); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	syncing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("it never synced: %v", trouble.Load())
	}
	return func(what string) error {
		select {
		case event := <-events:
			if event != what {
				return fmt.Errorf("the informer says %s instead of %s", event, what)
			}
			return nil
		case <-time.After(patience):
			return fmt.Errorf("the informer does not say %s", what)
		}
	}, nil
}

// The same of Jobs with types of their own, over protobuf, as kube-controller-manager does it.
func followJobs(ctx context.Context, config *rest.Config, namespace, name string) (func(string) error, error) {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	if _, err := client.BatchV1().Jobs(namespace).Get(ctx, "not-there", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get of a Job that is not there: %v", err)
	}
	return follow(ctx, factory.Batch().V1().Jobs().Informer(), name)
}

func nameOf(key string) string {
	_, name, _ := cache.SplitMetaNamespaceKey(key)
	return name
}
