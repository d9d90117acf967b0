// Command clientgo is a long-lived client of one cluster: an informer and, all the time, requests, both with one
// configuration of a kubeconfig. It prints one line of JSON for each ConfigMap that the watch reports, for each
// request, and for each problem.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "default"
	pause     = 100 * time.Millisecond
)

var printing sync.Mutex

func print(step, name string) {
	printing.Lock()
	defer printing.Unlock()
	line, _ := json.Marshal(map[string]string{"step": step, "name": name})
	fmt.Println(string(line))
}

// watch prints the ConfigMaps that exist, and those that are created later.
func watch(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	report := func(_ context.Context, _ *cache.Reflector, err error) { print("watch failed", err.Error()) }
	if err := informer.SetWatchErrorHandlerWithContext(report); err != nil {
		return err
	}
	added := func(each any) { print("added", each.(*core.ConfigMap).Name) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: added}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	print("synced", "")
	return nil
}

func run() error {
	name := flag.String("context", "", "context of the default kubeconfig")
	flag.Parse()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: *name},
	).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := watch(ctx, client); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, meta.GetOptions{}); err == nil {
			print("answered", "")
		} else if ctx.Err() == nil {
			print("failed", err.Error())
		}
		time.Sleep(pause)
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
