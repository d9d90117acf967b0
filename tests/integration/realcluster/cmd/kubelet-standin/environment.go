package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// environment returns a container's variables.
func (s *sandbox) environment(ctx context.Context, c *container) (map[string]string, error) {
	image := s.images.of(c.spec.Image)
	apiserver := s.apiserver
	if s.namespace == nil {
		apiserver = s.services.apiserver
	}
	host, port, _ := net.SplitHostPort(apiserver)
	variables := map[string]string{
		"PATH":                          strings.Join(append(append([]string{}, image.Path...), os.Getenv("PATH")), ":"),
		"HOSTNAME":                      s.pod.Name,
		"HOME":                          c.workDir(),
		"KUBERNETES_SERVICE_HOST":       host,
		"KUBERNETES_SERVICE_PORT":       port,
		"KUBERNETES_SERVICE_PORT_HTTPS": port,
	}
	if c.spec.TTY {
		variables["TERM"] = "xterm"
	}
	maps.Copy(variables, image.Environment)
	for _, source := range c.spec.EnvFrom {
		if err := s.addAll(ctx, variables, source); err != nil {
			return nil, err
		}
	}
	for _, variable := range c.spec.Env {
		value, set := expansion.Expand(variable.Value, expansion.MappingFuncFor(variables)), true
		if variable.ValueFrom != nil {
			var err error
			if value, set, err = s.value(ctx, c, variable.ValueFrom); err != nil {
				return nil, fmt.Errorf("variable %s: %w", variable.Name, err)
			}
		}
		if set {
			variables[variable.Name] = value
		}
	}
	return variables, nil
}

// addAll adds each key of a Secret or ConfigMap.
func (s *sandbox) addAll(ctx context.Context, variables map[string]string, source corev1.EnvFromSource) error {
	var found map[string]string
	var err error
	var optional *bool
	switch {
	case source.SecretRef != nil:
		optional = source.SecretRef.Optional
		found, err = s.secretData(ctx, source.SecretRef.Name)
	case source.ConfigMapRef != nil:
		optional = source.ConfigMapRef.Optional
		found, err = s.configMapData(ctx, source.ConfigMapRef.Name)
	}
	if err != nil && !(optional != nil && *optional && apierrors.IsNotFound(err)) {
		return err
	}
	for key, value := range found {
		variables[source.Prefix+key] = value
	}
	return nil
}

// value returns what a variable refers to, and whether there is anything.
func (s *sandbox) value(ctx context.Context, c *container, source *corev1.EnvVarSource) (value string, set bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err = s.field(source.FieldRef.FieldPath)
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err = resource.ExtractContainerResourceValue(source.ResourceFieldRef, &c.spec)
		return value, true, err
	case source.SecretKeyRef != nil:
		of := source.SecretKeyRef
		found, err := s.secretData(ctx, of.Name)
		return pick(found, err, "Secret "+of.Name, of.Key, of.Optional)
	case source.ConfigMapKeyRef != nil:
		of := source.ConfigMapKeyRef
		found, err := s.configMapData(ctx, of.Name)
		return pick(found, err, "ConfigMap "+of.Name, of.Key, of.Optional)
	}
	return "", false, fmt.Errorf("this kind of source is not supported")
}

func pick(found map[string]string, err error, object, key string, optional *bool) (string, bool, error) {
	value, set := found[key]
	switch may := optional != nil && *optional; {
	case set, may && err == nil, may && apierrors.IsNotFound(err):
		return value, set, nil
	case err != nil:
		return "", false, err
	}
	return "", false, fmt.Errorf("couldn't find key %s in %s", key, object)
}

// field returns a value of the downward API.
func (s *sandbox) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return s.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return s.pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return s.address, nil
	case "status.hostIP", "status.hostIPs":
		return "127.0.0.1", nil
	}
	return fieldpath.ExtractFieldPathAsString(s.pod, path)
}

func (s *sandbox) secretData(ctx context.Context, name string) (map[string]string, error) {
	found, err := s.client.CoreV1().Secrets(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range found.Data {
		values[key] = string(value)
	}
	return values, nil
}

func (s *sandbox) configMapData(ctx context.Context, name string) (map[string]string, error) {
	found, err := s.client.CoreV1().ConfigMaps(s.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}
