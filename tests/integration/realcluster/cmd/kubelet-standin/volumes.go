package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util"
)

// refreshPeriod is how old the content of a Secret or ConfigMap in a volume may be; a kubelet's takes a minute more.
const refreshPeriod = 5 * time.Second

// errUnsupported is why a pod with another kind of volume does not start.
var errUnsupported = errors.New("the stand-in for the kubelet does not support this kind of volume")

// files are the content of a volume by path.
type files = map[string]util.FileProjection

// token is one of a service account, and when to get the next one.
type token struct {
	text  string
	until time.Time
}

// fill creates the pod's volumes, or updates their files.
func (s *sandbox) fill(ctx context.Context) error {
	filled := map[string]string{}
	for _, volume := range s.pod.Spec.Volumes {
		path, err := s.volume(ctx, volume)
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		filled[volume.Name] = path
	}
	if s.volumes == nil { // containers have not started yet
		s.volumes = filled
	}
	return nil
}

// volume brings one volume's files up to date and returns its path.
func (s *sandbox) volume(ctx context.Context, volume corev1.Volume) (string, error) {
	path := filepath.Join(s.dir, "volumes", volume.Name)
	if volume.HostPath != nil {
		path = volume.HostPath.Path
		if kind := volume.HostPath.Type; kind != nil && *kind == corev1.HostPathDirectoryOrCreate {
			return path, os.MkdirAll(path, 0o755)
		}
		return path, nil
	}
	if claim := volume.PersistentVolumeClaim; claim != nil {
		return s.claimed(ctx, claim.ClaimName)
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return "", err
	}
	var content files
	var err error
	switch {
	case volume.EmptyDir != nil:
		return path, nil
	case volume.Secret != nil:
		of := volume.Secret
		content, err = s.secret(ctx, of.SecretName, of.Items, of.DefaultMode, of.Optional)
	case volume.ConfigMap != nil:
		of := volume.ConfigMap
		content, err = s.configMap(ctx, of.Name, of.Items, of.DefaultMode, of.Optional)
	case volume.DownwardAPI != nil:
		content, err = downwardapi.CollectData(volume.DownwardAPI.Items, s.pod, nil, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		content, err = s.projected(ctx, volume.Name, volume.Projected)
	default:
		err = errUnsupported
	}
	if err != nil {
		return "", err
	}
	writer, err := util.NewAtomicWriter(path, s.pod.Name)
	if err != nil {
		return "", err
	}
	return path, writer.Write(content, nil)
}

func (s *sandbox) projected(ctx context.Context, name string, volume *corev1.ProjectedVolumeSource) (files, error) {
	all := files{}
	for _, source := range volume.Sources {
		var content files
		var err error
		switch {
		case source.Secret != nil:
			content, err = s.secret(ctx, source.Secret.Name, source.Secret.Items, volume.DefaultMode, source.Secret.Optional)
		case source.ConfigMap != nil:
			of := source.ConfigMap
			content, err = s.configMap(ctx, of.Name, of.Items, volume.DefaultMode, of.Optional)
		case source.DownwardAPI != nil:
			content, err = downwardapi.CollectData(source.DownwardAPI.Items, s.pod, nil, volume.DefaultMode)
		case source.ServiceAccountToken != nil:
			content, err = s.token(ctx, name, source.ServiceAccountToken, *volume.DefaultMode)
		default:
			err = errUnsupported
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, content)
	}
	return all, nil
}

func (s *sandbox) secret(ctx context.Context, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (files, error) {
	found, err := s.client.CoreV1().Secrets(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if may := optional != nil && *optional; err == nil || may && apierrors.IsNotFound(err) {
		return secret.MakePayload(items, found, mode, may)
	}
	return nil, err
}

func (s *sandbox) configMap(ctx context.Context, name string, items []corev1.KeyToPath, mode *int32, optional *bool) (files, error) {
	found, err := s.client.CoreV1().ConfigMaps(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if may := optional != nil && *optional; err == nil || may && apierrors.IsNotFound(err) {
		return configmap.MakePayload(items, found, mode, may)
	}
	return nil, err
}

// token returns the service account's token, a new one when four fifths of the time of the last one are over.
func (s *sandbox) token(ctx context.Context, volume string, source *corev1.ServiceAccountTokenProjection, mode int32) (files, error) {
	key := volume + "/" + source.Path
	if time.Now().After(s.tokens[key].until) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: source.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: s.pod.Name, UID: s.pod.UID},
		}}
		if source.Audience != "" {
			request.Spec.Audiences = []string{source.Audience}
		}
		made, err := s.client.CoreV1().ServiceAccounts(s.pod.Namespace).CreateToken(ctx, s.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		life := time.Until(made.Status.ExpirationTimestamp.Time)
		s.tokens[key] = token{made.Status.Token, time.Now().Add(life * 4 / 5)}
	}
	return files{source.Path: {Data: []byte(s.tokens[key].text), Mode: mode}}, nil
}
