package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
)

// client sends requests one after the other on one connection.
type client struct {
	connection net.Conn
	reader     *bufio.Reader
	took       []time.Duration
}

// requests sends GETs on several connections in parallel for a given time.
func requests(arguments []string) error {
	flags := flag.NewFlagSet("load requests", flag.ExitOnError)
	connections := flags.Int("connections", 32, "number of parallel connections")
	duration := flags.Duration("for", 3*time.Second, "duration")
	each := flags.Bool("new", false, "a new connection for each request")
	steady := flags.Bool("steady", false, "print a line when each connection has had an answer, and measure from then on")
	wait := flags.Bool("wait", false, "with -steady: begin when a line can be read from standard input")
	paths := flags.Int("paths", 0, "number of objects that each connection gets in turn; 0: always the same path")
	find := addFlags(flags)
	flags.Parse(arguments)
	way, err := find()
	if err != nil {
		return err
	}
	target := way.target
	closing := ""
	if *each {
		closing = "Connection: close\r\n"
	}
	head := func(path string) []byte {
		return []byte(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", path, target.Host, way.bearer, closing))
	}
	heads := [][]byte{head(target.RequestURI())}
	for i := range *paths {
		heads = append(heads, head(fmt.Sprintf("%sapi/v1/namespaces/default/pods/pod-%d", target.RequestURI(), i)))
	}
	if *paths > 0 {
		heads = heads[1:]
	}
	dial := func() (net.Conn, error) { return way.dial(target.Host, target.Scheme == "https") }
	return measure(*connections, *duration, heads, dial, *each, *steady, *wait)
}

func measure(connections int, duration time.Duration, heads [][]byte, dial func() (net.Conn, error), each, steady, wait bool) error {
	clients := make([]*client, connections)
	results := make(chan error)
	for i := range clients {
		clients[i] = &client{}
	}
	if steady {
		for _, c := range clients {
			go func() { results <- c.open(heads[0], dial) }()
		}
		for range clients {
			if err := <-results; err != nil {
				return err
			}
		}
		fmt.Printf("{\"open\": %d}\n", connections)
		if wait {
			bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	begin := time.Now()
	for i, c := range clients {
		go func() { results <- c.run(begin.Add(duration), heads, i, dial, each) }()
	}
	var failures []error
	for range clients {
		if err := <-results; err != nil {
			failures = append(failures, err)
		}
	}
	seconds := time.Since(begin).Seconds()
	var took []time.Duration
	for _, c := range clients {
		took = append(took, c.took...)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d connections failed, after %d requests: %w", len(failures), len(took), errors.Join(failures[:1]...))
	}
	slices.Sort(took)
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"requests": float64(len(took)), "rate": float64(len(took)) / seconds,
		"p50": took[len(took)/2].Seconds() * 1e6, "p99": took[len(took)*99/100].Seconds() * 1e6,
	})
}

// opening bounds the connections that are being opened, as a proxy bounds those without a credential.
var opening = make(chan struct{}, 64)

// open makes the connection and sends the first request.
func (c *client) open(head []byte, dial func() (net.Conn, error)) (err error) {
	opening <- struct{}{}
	defer func() { <-opening }()
	if c.connection, err = dial(); err != nil {
		return err
	}
	c.reader = bufio.NewReaderSize(c.connection, 16*1024)
	return c.get(head)
}

// run sends requests until end; the n-th one has the head heads[(first + n) % len(heads)].
func (c *client) run(end time.Time, heads [][]byte, first int, dial func() (net.Conn, error), each bool) (err error) {
	for n := first; time.Now().Before(end); n++ {
		begin := time.Now()
		if c.connection == nil {
			if err := c.open(heads[n%len(heads)], dial); err != nil {
				return err
			}
		} else if err := c.get(heads[n%len(heads)]); err != nil {
			return err
		}
		c.took = append(c.took, time.Since(begin))
		if each {
			c.connection.Close()
			c.connection = nil
		}
	}
	return nil
}

func (c *client) get(head []byte) error {
	if _, err := c.connection.Write(head); err != nil {
		return err
	}
	answer, err := peekHead(c.reader)
	if err != nil {
		return err
	}
	if length := contentLength(answer); length >= 0 && bytes.HasPrefix(answer, okStatus) {
		_, err := c.reader.Discard(len(answer) + int(length))
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, body)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
