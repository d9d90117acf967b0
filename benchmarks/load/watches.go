package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watcher is one open watch.
type watcher struct {
	connection net.Conn
	mu         sync.Mutex
	took       []time.Duration
}

// watches holds many watches open.  It prints one line when each has had an event, and another one about the
// events of a given time after that, while the watches are still open.
func watches(arguments []string) error {
	flags := flag.NewFlagSet("load watches", flag.ExitOnError)
	count := flags.Int("connections", 500, "number of watches, each on its own connection")
	every := flags.Duration("every", time.Second, "interval of the events of a watch")
	duration := flags.Duration("for", 5*time.Second, "duration of the measurement, after all are open")
	find := addFlags(flags)
	flags.Parse(arguments)
	way, err := find()
	if err != nil {
		return err
	}
	var (
		opened   sync.WaitGroup
		counting atomic.Bool
		failed   = make(chan error, *count)
		slots    = make(chan struct{}, 16)
		all      = make([]*watcher, *count)
	)
	for i := range all {
		all[i] = &watcher{}
		slots <- struct{}{}
		opened.Add(1)
		go func() {
			err := all[i].open(way, *every)
			<-slots
			if err == nil {
				err = all[i].follow(&counting, &opened)
			}
			failed <- err
		}()
	}
	ready := make(chan struct{})
	go func() { opened.Wait(); close(ready) }()
	select {
	case err := <-failed:
		return err
	case <-ready:
	case <-time.After(60 * time.Second):
		return fmt.Errorf("not all of %d watches had an event within a minute", *count)
	}
	fmt.Printf("{\"watching\": %d}\n", *count)
	counting.Store(true)
	select {
	case err := <-failed:
		return err
	case <-time.After(*duration):
	}
	counting.Store(false)
	var took []time.Duration
	for _, w := range all {
		w.mu.Lock()
		took = append(took, w.took...)
		w.mu.Unlock()
	}
	if len(took) == 0 {
		return fmt.Errorf("no event arrived")
	}
	slices.Sort(took)
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"events": float64(len(took)), "rate": float64(len(took)) / duration.Seconds(), "seconds": duration.Seconds(),
		"p50": took[len(took)/2].Seconds() * 1e6, "p99": took[len(took)*99/100].Seconds() * 1e6,
	})
}

func (w *watcher) open(way *way, every time.Duration) (err error) {
	if w.connection, err = way.dial(way.target.Host, way.target.Scheme == "https"); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w.connection, "GET %sapi/v1/pods?watch=true&every=%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", way.target.Path, every, way.target.Host, way.bearer)
	return err
}

// follow reads events until the connection ends.
func (w *watcher) follow(counting *atomic.Bool, opened *sync.WaitGroup) error {
	response, err := http.ReadResponse(bufio.NewReaderSize(w.connection, 4096), nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("response to a watch: %s", response.Status)
	}
	events := bufio.NewReaderSize(response.Body, 2*eventSize)
	for first := true; ; first = false {
		event, err := events.ReadSlice('\n')
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		text, _, _ := strings.Cut(strings.TrimPrefix(string(event[:40]), `{"sent":`), ",")
		sent, err := strconv.ParseInt(text, 10, 64)
		if err != nil || len(event) != eventSize {
			return fmt.Errorf("malformed event of %d bytes: %q", len(event), text)
		}
		if counting.Load() {
			w.mu.Lock()
			w.took = append(w.took, time.Duration(now-sent))
			w.mu.Unlock()
		}
		if first {
			opened.Done()
		}
	}
}
