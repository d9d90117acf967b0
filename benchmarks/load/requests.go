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
	find := addFlags(flags)
	flags.Parse(arguments)
	way, err := find()
	if err != nil {
		return err
	}
	target := way.target
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n%s", target.RequestURI(), target.Host, way.bearer)
	if *each {
		head += "Connection: close\r\n"
	}
	dial := func() (net.Conn, error) { return way.dial(target.Host, target.Scheme == "https") }
	return measure(*connections, *duration, []byte(head+"\r\n"), dial, *each)
}

func measure(connections int, duration time.Duration, head []byte, dial func() (net.Conn, error), each bool) error {
	clients := make([]*client, connections)
	results := make(chan error)
	begin := time.Now()
	for i := range clients {
		clients[i] = &client{}
		go func() { results <- clients[i].run(begin.Add(duration), head, dial, each) }()
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

func (c *client) run(end time.Time, head []byte, dial func() (net.Conn, error), each bool) (err error) {
	for time.Now().Before(end) {
		begin := time.Now()
		if c.connection == nil {
			if c.connection, err = dial(); err != nil {
				return err
			}
			c.reader = bufio.NewReaderSize(c.connection, 16*1024)
		}
		if err := c.get(head); err != nil {
			return err
		}
		c.took = append(c.took, time.Since(begin))
		if each {
			c.connection.Close()
			c.connection = nil
		}
	}
	if c.connection != nil {
		c.connection.Close()
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
