// Command gitops is a small Argo CD application controller: it uses gitops-engine to bring Tower's clusters to
// the state in the manifests, as Argo CD does. It reads one command per line of JSON, and prints one line of
// JSON for each.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	manager  = "argocd-controller"
	tracking = "argocd.argoproj.io/tracking-id"
)

// Command is a sync (with the options of Argo CD) or a comparison of the manifests with the clusters.
type Command struct {
	Op         string                       `json:"op"`
	Manifests  []*unstructured.Unstructured `json:"manifests"`
	ServerSide bool                         `json:"serverSide"`
}

// Answer has the message for each cluster of a sync, or the states of a comparison.
type Answer struct {
	Results map[string]string `json:"results,omitempty"`
	Synced  bool              `json:"synced"`
	Error   string            `json:"error,omitempty"`
}

type controller struct {
	config *rest.Config
	cache  cache.ClusterCache
	engine engine.GitOpsEngine
}

func newController(config *rest.Config) *controller {
	log := logr.Discard()
	clusters := cache.NewClusterCache(config, cache.SetLogr(log), cache.SetPopulateResourceInfoHandler(
		func(found *unstructured.Unstructured, _ bool) (any, bool) {
			isManaged := found.GetAnnotations()[tracking] != ""
			return isManaged, isManaged
		},
	))
	return &controller{config, clusters, engine.NewEngine(config, clusters, engine.WithLogr(log))}
}

func isManaged(found *cache.Resource) bool {
	managed, _ := found.Info.(bool)
	return managed
}

func (c *controller) sync(command Command) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	options := []sync.SyncOpt{
		sync.WithPrune(true), sync.WithManifestValidation(true), sync.WithServerSideApply(command.ServerSide),
		sync.WithServerSideApplyManager(manager),
	}
	found, err := c.engine.Sync(ctx, command.Manifests, isManaged, "1", "default", options...)
	results := map[string]string{}
	for _, each := range found {
		results[each.ResourceKey.Name] = fmt.Sprintf("%s: %s", each.Status, each.Message)
	}
	return results, err
}

// compare returns whether the clusters are as in the manifests, by Argo CD's own or its server-side comparison.
func (c *controller) compare(command Command) (bool, error) {
	live, err := c.cache.GetManagedLiveObjs(command.Manifests, isManaged)
	if err != nil {
		return false, err
	}
	pairs := sync.Reconcile(command.Manifests, live, "default", c.cache)
	operations, cleanup, err := kube.ManageServerSideDiffDryRuns(
		c.config, c.cache.GetOpenAPISchema(), tracing.NopTracer{}, logr.Discard(),
		func(string) (kube.CleanupFunc, error) { return func() {}, nil },
	)
	if err != nil {
		return false, err
	}
	defer cleanup()
	found, err := diff.DiffArray(
		pairs.Target, pairs.Live, diff.WithManager(manager), diff.WithGVKParser(c.cache.GetGVKParser()),
		diff.WithServerSideDiff(command.ServerSide),
		diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(operations)),
	)
	if err != nil {
		return false, err
	}
	return !found.Modified, nil
}

func (c *controller) run(command Command) Answer {
	for _, manifest := range command.Manifests {
		annotations := manifest.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = "fleet:" + manifest.GetName()
		manifest.SetAnnotations(annotations)
	}
	var answer Answer
	var err error
	if command.Op == "sync" {
		answer.Results, err = c.sync(command)
	} else {
		answer.Synced, err = c.compare(command)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func run() error {
	path := flag.String("tower", "", "kubeconfig of an administrator of Tower")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *path)
	if err != nil {
		return err
	}
	controller := newController(config)
	stop, err := controller.engine.Run()
	if err != nil {
		return err
	}
	defer stop()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command Command
		if err := json.Unmarshal(lines.Bytes(), &command); err != nil {
			return err
		}
		line, err := json.Marshal(controller.run(command))
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return lines.Err()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
