// Command controller is a small operator for Tower's clusters, written with controller-runtime: it adds a
// finalizer, a label, an annotation and a condition to each cluster, and removes its finalizer when the cluster
// is deleted. It records events with the recorders of both API groups. It prints one line of JSON for each step.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	finalizer = "example.org/registered"
	owner     = "example-controller"
)

var groupVersion = schema.GroupVersion{Group: "cluster.kubesphere.io", Version: "v1alpha1"}

// Cluster has the fields that this controller uses.
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]any `json:"spec,omitempty"`
	Status            Status         `json:"status,omitempty"`
}

// Status has the conditions of a cluster.
type Status struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterList is a list of clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}

// DeepCopyObject copies through JSON.
func (c *Cluster) DeepCopyObject() runtime.Object { return copied(c, &Cluster{}) }

// DeepCopyObject copies through JSON.
func (l *ClusterList) DeepCopyObject() runtime.Object { return copied(l, &ClusterList{}) }

func copied[T runtime.Object](from, to T) T {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

type reconciler struct {
	client.Client
	recorder events.EventRecorder
	older    record.EventRecorder
	printing sync.Mutex
}

func (r *reconciler) print(step, name string) {
	r.printing.Lock()
	defer r.printing.Unlock()
	line, _ := json.Marshal(map[string]string{"step": step, "name": name})
	fmt.Println(string(line))
}

// Reconcile brings one cluster to its desired state, one kind of write after the other.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &Cluster{}
	if err := r.Get(ctx, request.NamespacedName, cluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.print("gone", request.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(cluster, finalizer) {
			r.print("finalized", cluster.Name)
			return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, cluster))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(cluster, finalizer) {
		if err := r.Update(ctx, cluster); err != nil {
			return ctrl.Result{}, err
		}
		r.recorder.Eventf(cluster, nil, "Normal", "Adopted", "Adopt", "The controller has adopted %s.", cluster.Name)
		for range 3 {
			r.older.Event(cluster, "Warning", "Unlabeled", "The cluster has no label yet.")
		}
		r.print("updated", cluster.Name)
	}
	if err := r.apply(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, fmt.Errorf("apply: %w", err)
	}
	r.print("applied", cluster.Name)
	if err := r.annotate(ctx, cluster); err != nil {
		return ctrl.Result{}, fmt.Errorf("patch: %w", err)
	}
	return ctrl.Result{}, r.report(ctx, cluster)
}

// apply sets a label by server-side apply.
func (r *reconciler) apply(ctx context.Context, name string) error {
	desired := &unstructured.Unstructured{}
	desired.SetGroupVersionKind(groupVersion.WithKind("Cluster"))
	desired.SetName(name)
	desired.SetLabels(map[string]string{"example.org/seen": "true"})
	return r.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(owner), client.ForceOwnership)
}

// annotate sets an annotation by a merge patch with the resource version that was read.
func (r *reconciler) annotate(ctx context.Context, cluster *Cluster) error {
	if cluster.Annotations["example.org/noted"] == "true" {
		return nil
	}
	patch := client.MergeFrom(cluster.DeepCopyObject().(*Cluster))
	if cluster.Annotations == nil {
		cluster.Annotations = map[string]string{}
	}
	cluster.Annotations["example.org/noted"] = "true"
	err := r.Patch(ctx, cluster, patch)
	if err == nil {
		r.print("patched", cluster.Name)
	}
	return err
}

// report sets one condition with a patch of the status, and another with an update of it.
func (r *reconciler) report(ctx context.Context, cluster *Cluster) error {
	condition := metav1.Condition{
		Type: "Registered", Status: metav1.ConditionTrue, Reason: "Seen", Message: "The controller has seen it.",
		ObservedGeneration: cluster.Generation,
	}
	before := cluster.DeepCopyObject().(*Cluster)
	if meta.SetStatusCondition(&cluster.Status.Conditions, condition) {
		if err := r.Status().Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("patch of the status: %w", err)
		}
		r.print("status patched", cluster.Name)
	}
	condition.Type = "Inventoried"
	if meta.SetStatusCondition(&cluster.Status.Conditions, condition) {
		if err := r.Status().Update(ctx, cluster); err != nil {
			return fmt.Errorf("update of the status: %w", err)
		}
		r.print("status updated", cluster.Name)
	}
	return nil
}

func run() error {
	path := flag.String("tower", "", "kubeconfig of an administrator of Tower")
	flag.Parse()
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config, err := clientcmd.BuildConfigFromFlags("", *path)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Cluster{}, &ClusterList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, LeaderElection: false,
	})
	if err != nil {
		return err
	}
	reconciler := &reconciler{
		Client:   manager.GetClient(),
		recorder: manager.GetEventRecorder(owner),
		older:    manager.GetEventRecorderFor(owner), //nolint:staticcheck // most controllers still use it
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&Cluster{}).Complete(reconciler); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
