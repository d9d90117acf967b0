package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// startProbes begins the probes of the running process; the result ends them.
func (c *container) startProbes(changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if !c.probe(ctx, "Startup", c.spec.StartupProbe, func(ok bool) { c.probed(&c.up, ok, changed) }) {
			return
		}
		all.Go(func() {
			c.probe(ctx, "Readiness", c.spec.ReadinessProbe, func(ok bool) { c.probed(&c.ready, ok, changed) })
		})
		c.probe(ctx, "Liveness", c.spec.LivenessProbe, nil)
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// probed records the result of a probe.
func (c *container) probed(result *bool, ok bool, changed func()) {
	c.mu.Lock()
	differs := *result != ok
	*result = ok
	c.mu.Unlock()
	if differs {
		changed()
	}
}

// probe makes one kind of probe until ctx ends; a startup probe ends when it succeeds.  A failure of a startup or
// liveness probe ends the container's process.  It returns false if the process is to end.
func (c *container) probe(ctx context.Context, kind string, p *corev1.Probe, result func(ok bool)) bool {
	if p == nil {
		return true
	}
	pause := time.Duration(p.InitialDelaySeconds) * time.Second
	for successes, failures := int32(0), int32(0); ; pause = time.Duration(p.PeriodSeconds) * time.Second {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		err := c.probeOnce(ctx, p)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			successes, failures = successes+1, 0
			if successes >= p.SuccessThreshold && result != nil {
				result(true)
			}
			if kind == "Startup" {
				return true
			}
			continue
		}
		successes, failures = 0, failures+1
		c.sandbox.warn("Unhealthy", fmt.Errorf("%s probe failed: %w", kind, err))
		if failures < p.FailureThreshold {
			continue
		}
		if kind == "Readiness" {
			result(false)
			continue
		}
		grace := c.pod.Spec.TerminationGracePeriodSeconds
		if p.TerminationGracePeriodSeconds != nil {
			grace = p.TerminationGracePeriodSeconds
		}
		go c.interrupt(time.Duration(*grace) * time.Second)
		return false
	}
}

func (c *container) probeOnce(ctx context.Context, p *corev1.Probe) error {
	ctx, stop := context.WithTimeout(ctx, time.Duration(p.TimeoutSeconds)*time.Second)
	defer stop()
	switch {
	case p.HTTPGet != nil:
		return c.probeHTTP(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		address, err := c.probeAddress(p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := c.sandbox.dial(address)
		if err != nil {
			return err
		}
		return conn.Close()
	case p.Exec != nil:
		return c.run(ctx, p.Exec.Command)
	}
	return fmt.Errorf("this kind of probe is not supported")
}

func (c *container) probeHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	address, err := c.probeAddress(get.Host, get.Port)
	if err != nil {
		return err
	}
	target, err := url.Parse(get.Path)
	if err != nil {
		return err
	}
	target.Scheme, target.Host = "http", address
	if get.Scheme == corev1.URISchemeHTTPS {
		target.Scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/standin")
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	client := http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(_ context.Context, _, address string) (net.Conn, error) { return c.sandbox.dial(address) },
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as the kubelet
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("%s: %s %s", target, answer.Status, text)
	}
	return nil
}

// probeAddress returns the address of a port, by number or name, of the pod or of another host.
func (c *container) probeAddress(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = c.sandbox.address
	}
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		for _, named := range c.spec.Ports {
			if named.Name == port.StrVal {
				number = int(named.ContainerPort)
			}
		}
	}
	if number == 0 {
		return "", fmt.Errorf("the container has no port %s", port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
