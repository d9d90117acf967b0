package main

import (
	"context"
	"log"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// storageClass is the class of volumes that are directories of this machine; provisioner is its and their mark.
const (
	storageClass = "standard"
	provisioner  = "realcluster/directory"
	provisionKey = "pv.kubernetes.io/provisioned-by"
)

// claims makes a volume, which is a directory, for each claim of the class, and removes it with the claim.
type claims struct {
	client kubernetes.Interface
	dir    string
}

// follow makes it follow the API server's objects.
func (c *claims) follow(ctx context.Context, factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().PersistentVolumeClaims().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.provide(ctx, object.(*corev1.PersistentVolumeClaim)) },
		UpdateFunc: func(_, object any) { c.provide(ctx, object.(*corev1.PersistentVolumeClaim)) },
	})
	if err != nil {
		return err
	}
	_, err = factory.Core().V1().PersistentVolumes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.reclaim(ctx, object.(*corev1.PersistentVolume)) },
		UpdateFunc: func(_, object any) { c.reclaim(ctx, object.(*corev1.PersistentVolume)) },
	})
	return err
}

// provide creates the volume of a claim; a controller binds them.
func (c *claims) provide(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != storageClass {
		return
	}
	name := "pvc-" + string(claim.UID)
	path := filepath.Join(c.dir, name)
	err := os.MkdirAll(path, 0o777)
	if err == nil {
		_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionKey: provisioner}},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, StorageClassName: storageClass,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
				ClaimRef: &corev1.ObjectReference{
					APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
				},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		log.Printf("claim %s/%s: %v", claim.Namespace, claim.Name, err)
	}
}

// reclaim removes a volume without its claim.
func (c *claims) reclaim(ctx context.Context, volume *corev1.PersistentVolume) {
	if volume.Annotations[provisionKey] != provisioner || volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil {
		return
	}
	err := os.RemoveAll(filepath.Join(c.dir, volume.Name))
	if err == nil {
		err = c.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		log.Printf("volume %s: %v", volume.Name, err)
	}
}

// claimed returns the directory of a claim's volume.
func (s *sandbox) claimed(ctx context.Context, name string) (string, error) {
	claim, err := s.client.CoreV1().PersistentVolumeClaims(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	volume, err := s.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if volume.Spec.HostPath == nil {
		return "", errUnsupported
	}
	return volume.Spec.HostPath.Path, nil
}
