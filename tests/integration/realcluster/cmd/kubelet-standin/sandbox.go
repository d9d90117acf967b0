package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"realcluster/entry"
)

// outputDelay is how long the output of a container's other processes is read after the first one has ended.
const outputDelay = 100 * time.Millisecond

// isolation is shared by this node's pods that have their own network and file system.
type isolation struct {
	client    kubernetes.Interface
	events    record.EventRecorder
	network   *network
	services  *services
	images    images
	enter     string // path of the command that starts containers
	apiserver string // address of the Service kubernetes
}

// sandbox is a pod's network and its volumes.
type sandbox struct {
	*isolation
	pod       *corev1.Pod
	dir       string
	namespace *os.File // nil if the pod has the machine's network
	address   string
	doors     []net.Listener    // ports of the machine in the pod's network
	volumes   map[string]string // paths on this machine by the volume's name
	tokens    map[string]token  // by volume and path
	life      context.Context   // until the pod ends
	end       context.CancelFunc
}

// newIsolation makes the cluster's network, in which apiserver is the address of the API server with this URL.
func newIsolation(ctx context.Context, client kubernetes.Interface, server, cidr, apiserver, imagesFile string, factory informers.SharedInformerFactory) (*isolation, error) {
	known, err := readImages(imagesFile)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	network, err := newNetwork(cidr)
	if err != nil {
		return nil, err
	}
	services, err := newServices(network, strings.TrimPrefix(server, "https://"), factory)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &isolation{
		client: client, network: network, services: services, images: known, apiserver: apiserver,
		events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"}),
		enter:  filepath.Join(filepath.Dir(self), "enter"),
	}, nil
}

// newSandbox makes the network of a pod on the node with this address.
func (i *isolation) newSandbox(ctx context.Context, pod *corev1.Pod, dir, address string) (*sandbox, error) {
	s := &sandbox{isolation: i, pod: pod, dir: dir, address: address, tokens: map[string]token{}}
	s.life, s.end = context.WithCancel(ctx)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if !pod.Spec.HostNetwork {
		var err error
		if s.namespace, s.address, err = i.network.connect(); err != nil {
			return nil, err
		}
		s.openDoors(s.life)
	}
	if err := s.writeHosts(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare creates the volumes, when all that they need exists, and keeps them up to date until the pod ends.
func (s *sandbox) prepare() bool {
	last := ""
	for {
		err := s.fill(s.life)
		if err == nil {
			go s.refresh()
			return true
		}
		if last != err.Error() && s.life.Err() == nil {
			last = err.Error()
			s.warn("FailedMount", err)
		}
		select {
		case <-s.life.Done():
			return false
		case <-time.After(restartDelay):
		}
	}
}

// hosts is the path of the pod's /etc/hosts.
func (s *sandbox) hosts() string { return filepath.Join(s.dir, "hosts") }

// writeHosts writes it: with the names of Services, if their addresses are of use.
func (s *sandbox) writeHosts() error {
	lines := "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + s.address + "\t" + s.pod.Name + "\n"
	if s.namespace == nil {
		machine, err := os.ReadFile("/etc/hosts")
		if err != nil {
			return err
		}
		lines = string(machine)
	}
	for _, alias := range s.pod.Spec.HostAliases {
		lines += alias.IP + "\t" + strings.Join(alias.Hostnames, " ") + "\n"
	}
	if err := os.WriteFile(s.hosts(), []byte(lines), 0o644); err != nil || s.namespace == nil {
		return err
	}
	s.services.addHosts(s.hosts(), s.pod.Namespace, lines)
	return nil
}

// openDoors relays the ports that the ConfigMap kube-system/machine-ports names from 127.0.0.1 in the pod to 127.0.0.1 of
// the machine, where the programs are that a test has started itself.
func (s *sandbox) openDoors(ctx context.Context) {
	found, err := s.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "machine-ports", metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			log.Print(err)
		}
		return
	}
	for _, port := range sorted(found.Data) {
		address := net.JoinHostPort("127.0.0.1", port)
		listener, err := s.network.listen(s.namespace, address)
		if err != nil {
			log.Printf("port %s of the machine in pod %s: %v", port, s.pod.Name, err)
			continue
		}
		s.doors = append(s.doors, listener)
		one := &relay{listener: listener, targets: []string{address}}
		go s.services.serve(one)
	}
}

// close gives the network back; the pod's processes have ended.
func (s *sandbox) close() {
	s.end()
	for _, door := range s.doors {
		door.Close()
	}
	s.services.removeHosts(s.hosts())
	if s.namespace != nil {
		s.namespace.Close()
		s.network.release(s.address)
	}
}

// dial connects to a port as the kubelet does for probes.
func (s *sandbox) dial(address string) (net.Conn, error) {
	if s.namespace == nil {
		return net.DialTimeout("tcp", address, dialTimeout)
	}
	return s.network.dial(address)
}

// dialLocal connects to 127.0.0.1 in the pod.
func (s *sandbox) dialLocal(port int32) (net.Conn, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	if s.namespace == nil {
		return net.DialTimeout("tcp", address, dialTimeout)
	}
	return s.network.dialFrom(s.namespace, address)
}

// command returns the process that enters the container of a running process, or makes a new one if that is 0.
func (s *sandbox) command(c *container, process int, argv, environment []string) (*exec.Cmd, error) {
	image := s.images.of(c.spec.Image)
	e := entry.Entry{Command: argv, Directory: c.workDir(), Process: process}
	if s.namespace != nil {
		e.Network, e.Host = true, s.pod.Name
	}
	if directory := c.spec.WorkingDir; directory != "" {
		e.Directory = directory
	} else if image.Directory != "" {
		e.Directory = image.Directory
	}
	if process == 0 {
		e.Root = filepath.Join(c.dir, "root")
		if err := os.MkdirAll(e.Root, 0o700); err != nil {
			return nil, err
		}
		mounts, err := s.mounts(c)
		if err != nil {
			return nil, err
		}
		e.Mounts = mounts
		if security := c.spec.SecurityContext; security != nil && security.ReadOnlyRootFilesystem != nil {
			e.ReadOnly = *security.ReadOnlyRootFilesystem
		}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.enter)
	cmd.WaitDelay = outputDelay
	cmd.Env = append(append([]string{}, environment...), entry.Variable+"="+string(data))
	if s.namespace != nil {
		cmd.ExtraFiles = []*os.File{s.namespace}
	}
	return cmd, nil
}

func (s *sandbox) mounts(c *container) ([]entry.Mount, error) {
	mounts := []entry.Mount{
		{Source: c.workDir(), Target: c.workDir()},
		{Source: s.hosts(), Target: "/etc/hosts"},
	}
	for _, mount := range c.spec.VolumeMounts {
		source, ok := s.volumes[mount.Name]
		if !ok {
			return nil, fmt.Errorf("volume %s is not mounted", mount.Name)
		}
		if mount.SubPath != "" {
			source = filepath.Join(source, mount.SubPath)
			if _, err := os.Stat(source); os.IsNotExist(err) {
				if err := os.MkdirAll(source, 0o755); err != nil {
					return nil, err
				}
			}
		}
		mounts = append(mounts, entry.Mount{Source: source, Target: mount.MountPath, ReadOnly: mount.ReadOnly})
	}
	return mounts, nil
}

// warn records an Event of the pod.
func (s *sandbox) warn(reason string, err error) {
	s.events.Event(s.pod, corev1.EventTypeWarning, reason, err.Error())
}

// refresh keeps the volumes' files up to date.
func (s *sandbox) refresh() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-time.After(refreshPeriod):
			if err := s.fill(s.life); err != nil && s.life.Err() == nil {
				log.Printf("volumes of pod %s/%s: %v", s.pod.Namespace, s.pod.Name, err)
			}
		}
	}
}
