package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The addresses of the pods: the same in every cluster, because nothing of a cluster's network is outside of it.
const (
	podGateway = "10.244.0.1"
	podBits    = 16
	firstPod   = 2
	lastPod    = 254
)

// dialTimeout is how long to wait for a pod that does not answer.
const dialTimeout = 5 * time.Second

// network is the cluster's: a network namespace with a bridge, to which the namespace of each pod has a cable.  The
// machine's own network has no part in it and is not changed.  The namespaces end with this process and its pods.
type network struct {
	machine, cluster *os.File

	mu   sync.Mutex
	used map[string]bool // the pods' addresses
}

// newNetwork creates a network in which the addresses of services, in CIDR notation, are those of the cluster's namespace.
func newNetwork(services string) (*network, error) {
	machine, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	n := &network{machine: machine, used: map[string]bool{}}
	if n.cluster, err = n.newNamespace(); err != nil {
		return nil, err
	}
	return n, n.within(n.cluster, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
		// A range on lo makes each of its addresses a local one.
		return errors.Join(raise("lo", services), raise("pods", fmt.Sprintf("%s/%d", podGateway, podBits)))
	})
}

func currentNamespace() (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
}

// newNamespace makes a network namespace, which lives as long as the file or a process in it.
func (n *network) newNamespace() (made *os.File, err error) {
	return made, n.aside(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		made, err = currentNamespace()
		return err
	})
}

// within calls do in a namespace.  The sockets that it opens stay in the namespace.
func (n *network) within(namespace *os.File, do func() error) error {
	return n.aside(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// aside calls do on a thread that may change its namespace, and brings it back.  The thread must not end, because
// the processes that it has started would end with it.
func (n *network) aside(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := do()
		check(unix.Setns(int(n.machine.Fd()), unix.CLONE_NEWNET))
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// raise brings an interface up and gives it an address.
func raise(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return fmt.Errorf("address %s of %s: %w", address, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// connect makes a pod's namespace and its cable to the bridge; release returns its address.
func (n *network) connect() (namespace *os.File, address string, err error) {
	if namespace, err = n.newNamespace(); err != nil {
		return nil, "", err
	}
	number, address, err := n.allocate()
	if err == nil {
		err = n.within(n.cluster, func() error { return cable(number, namespace) })
	}
	if err == nil {
		err = n.within(namespace, func() error {
			return errors.Join(raise("lo", ""), raise("eth0", fmt.Sprintf("%s/%d", address, podBits)),
				netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(podGateway)}))
		})
	}
	if err != nil {
		namespace.Close()
		n.release(address)
		return nil, "", err
	}
	return namespace, address, nil
}

func (n *network) allocate() (number int, address string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for number = firstPod; number <= lastPod; number++ {
		if address = fmt.Sprintf("10.244.0.%d", number); !n.used[address] {
			n.used[address] = true
			return number, address, nil
		}
	}
	return 0, "", fmt.Errorf("all %d addresses of pods are in use", len(n.used))
}

func (n *network) release(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, address)
}

// cable joins a namespace, as its eth0, with the bridge of the current one.
func cable(number int, namespace *os.File) error {
	name := fmt.Sprintf("pod%d", number)
	if old, err := netlink.LinkByName(name); err == nil { // a pod with this address is just ending
		netlink.LinkDel(old)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(namespace.Fd())}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	bridge, err := netlink.LinkByName("pods")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(pair, bridge); err != nil {
		return err
	}
	return raise(name, "")
}

// dial connects to an address of the cluster's network.
func (n *network) dial(address string) (net.Conn, error) { return n.dialFrom(n.cluster, address) }

// dialFrom connects to an address as a process in the namespace would.
func (n *network) dialFrom(namespace *os.File, address string) (conn net.Conn, err error) {
	return conn, n.within(namespace, func() error {
		dialer := net.Dialer{Timeout: dialTimeout, FallbackDelay: -1} // on this thread
		conn, err = dialer.Dial("tcp", address)
		return err
	})
}

// listen opens a port in a namespace.
func (n *network) listen(namespace *os.File, address string) (listener net.Listener, err error) {
	return listener, n.within(namespace, func() error {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		return err
	})
}

// isPod returns whether an address is in the pods' range.
func isPod(address string) bool {
	_, pods, _ := net.ParseCIDR(fmt.Sprintf("%s/%d", podGateway, podBits))
	ip := net.ParseIP(address)
	return ip != nil && pods.Contains(ip)
}

// sorted returns the keys of a map in order.
func sorted[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
