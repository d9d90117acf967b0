package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// nodeAddress is where the machine has the node ports of Services.
const nodeAddress = "127.0.0.1"

// services plays kube-proxy and the cluster's DNS: it relays the ports of Services, which are addresses of the
// cluster's namespace, to their endpoints, and writes their names into the pods' hosts files.
type services struct {
	network   *network
	apiserver string // its address on the machine: that of the Service kubernetes

	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister

	mu     sync.Mutex
	relays map[string]*relay // by address and port of the Service
	hosts  map[string]hosts  // by path
}

// hosts is a pod's hosts file.
type hosts struct {
	namespace string // that of the pod's object
	lines     string // before those of Services
}

// relay is one port of a Service.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	targets  []string
}

func newServices(n *network, apiserver string, factory informers.SharedInformerFactory) (*services, error) {
	s := &services{
		network: n, apiserver: apiserver, relays: map[string]*relay{}, hosts: map[string]hosts{},
		services: factory.Core().V1().Services().Lister(), slices: factory.Discovery().V1().EndpointSlices().Lister(),
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.update() },
		UpdateFunc: func(any, any) { s.update() },
		DeleteFunc: func(any) { s.update() },
	}
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer()} {
		if _, err := informer.AddEventHandler(changed); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// update brings relays and hosts files into line with the API server's objects.
func (s *services) update() {
	all, _ := s.services.List(labels.Everything())
	wanted := map[string][]string{}
	for _, service := range all {
		for _, port := range service.Spec.Ports {
			if net.ParseIP(service.Spec.ClusterIP) == nil || port.Protocol != corev1.ProtocolTCP {
				continue
			}
			targets := s.targets(service, port)
			wanted[net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(port.Port)))] = targets
			if port.NodePort != 0 {
				wanted[net.JoinHostPort(nodeAddress, strconv.Itoa(int(port.NodePort)))] = targets
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, one := range s.relays {
		if _, kept := wanted[address]; !kept {
			one.listener.Close()
			delete(s.relays, address)
		}
	}
	for address, targets := range wanted {
		if s.relays[address] == nil {
			namespace := s.network.cluster
			if strings.HasPrefix(address, nodeAddress+":") {
				namespace = s.network.machine
			}
			listener, err := s.network.listen(namespace, address)
			if err != nil {
				log.Printf("service at %s: %v", address, err)
				continue
			}
			s.relays[address] = &relay{listener: listener}
			go s.serve(s.relays[address])
		}
		s.relays[address].set(targets)
	}
	for path := range s.hosts {
		s.write(path, all)
	}
}

// targets returns the ready endpoints of a Service's port.
func (s *services) targets(service *corev1.Service, port corev1.ServicePort) (targets []string) {
	if service.Namespace == metav1.NamespaceDefault && service.Name == "kubernetes" {
		return []string{s.apiserver}
	}
	for _, slice := range s.slicesOf(service) {
		for _, offered := range slice.Ports {
			if offered.Port == nil || offered.Name != nil && *offered.Name != port.Name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; ready == nil || *ready {
					targets = append(targets, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*offered.Port))))
				}
			}
		}
	}
	return targets
}

func (s *services) slicesOf(service *corev1.Service) []*discoveryv1.EndpointSlice {
	found, _ := s.slices.EndpointSlices(service.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}))
	return found
}

func (r *relay) set(targets []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets = targets
}

func (r *relay) target() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.targets) == 0 {
		return "", false
	}
	return r.targets[rand.Intn(len(r.targets))], true
}

func (s *services) serve(r *relay) {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			target, ok := r.target()
			if !ok {
				reset(conn)
				return
			}
			upstream, err := s.dial(target)
			if err != nil {
				reset(conn)
				return
			}
			join(conn, upstream)
		}()
	}
}

// reset makes the peer see "connection reset", as a Service without endpoints has no port either.
func reset(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) }

// dial connects to an endpoint: a pod, or an address of the machine's network.
func (s *services) dial(address string) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err == nil && isPod(host) {
		return s.network.dial(address)
	}
	return net.DialTimeout("tcp", address, dialTimeout)
}

// join copies each direction until its own end.
func join(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		transfer(a, b)
	}()
	transfer(b, a)
	<-done
}

func transfer(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	to.(*net.TCPConn).CloseWrite()
}

// addHosts makes a pod's hosts file follow the Services; removeHosts ends this.
func (s *services) addHosts(path, namespace, lines string) {
	all, _ := s.services.List(labels.Everything())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[path] = hosts{namespace, lines}
	s.write(path, all)
}

func (s *services) removeHosts(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, path)
}

// write writes a hosts file in place, because it is mounted in containers.
func (s *services) write(path string, all []*corev1.Service) {
	lines := s.hosts[path].lines
	for _, service := range all {
		full := service.Name + "." + service.Namespace
		names := []string{full + ".svc.cluster.local", full + ".svc", full}
		if service.Namespace == s.hosts[path].namespace {
			names = append(names, service.Name)
		}
		for _, address := range s.addresses(service) {
			lines += address + "\t" + strings.Join(names, " ") + "\n"
		}
	}
	if old, _ := os.ReadFile(path); string(old) != lines {
		if err := os.WriteFile(path, []byte(lines), 0o644); err != nil {
			log.Print(err)
		}
	}
}

// addresses returns what DNS answers for a Service's name.
func (s *services) addresses(service *corev1.Service) []string {
	if net.ParseIP(service.Spec.ClusterIP) != nil {
		return []string{service.Spec.ClusterIP}
	}
	found := map[string]bool{}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		for _, slice := range s.slicesOf(service) {
			for _, endpoint := range slice.Endpoints {
				if ready := endpoint.Conditions.Ready; ready == nil || *ready || service.Spec.PublishNotReadyAddresses {
					found[endpoint.Addresses[0]] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// resolve replaces the name of a Service by its address.
func (s *services) resolve(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) != nil {
		return address, err
	}
	name, namespace, _ := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(host, ".svc.cluster.local"), ".svc"), ".")
	if namespace != "" {
		if service, err := s.services.Services(namespace).Get(name); err == nil {
			if found := s.addresses(service); len(found) > 0 {
				return net.JoinHostPort(found[0], port), nil
			}
		}
	}
	return "", fmt.Errorf("%s: not the name of a Service with an address", host)
}

// serveDoor lets the machine into the cluster's network: an HTTP proxy that knows CONNECT only.
func (s *services) serveDoor(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go s.connect(conn)
	}
}

func (s *services) connect(conn net.Conn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(dialTimeout))
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	if request.Method != http.MethodConnect {
		fmt.Fprint(conn, "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nContent-Length: 0\r\n\r\n")
		return
	}
	address, err := s.resolve(request.Host)
	var upstream net.Conn
	if err == nil {
		upstream, err = s.network.dial(address)
	}
	if err != nil {
		text := err.Error() + "\n"
		fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		return
	}
	fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	if early, _ := reader.Peek(reader.Buffered()); len(early) > 0 {
		upstream.Write(early)
	}
	join(conn, upstream)
}
