package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"time"
)

// HTTP/1.1 with as little work as possible on both ends: load generator and backend share the machine with the
// measured systems, and the CPU that they use makes all systems look alike.

var (
	endOfHead = []byte("\r\n\r\n")
	okStatus  = []byte("HTTP/1.1 200 ")
	small     = []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\nContent-Length: 1024\r\n\r\n" +
		`{"data":"` + string(block[:1013]) + `"}`)
)

const eventSize = 1024

// peekHead returns a message's head up to and including the empty line, without consuming it; the bytes are valid
// until the next read.
func peekHead(r *bufio.Reader) ([]byte, error) {
	for wanted := 1; ; wanted = r.Buffered() + 1 {
		if _, err := r.Peek(wanted); err != nil {
			return nil, err
		}
		seen, _ := r.Peek(r.Buffered())
		if end := bytes.Index(seen, endOfHead); end >= 0 {
			return seen[:end+len(endOfHead)], nil
		}
	}
}

// contentLength returns the Content-Length of a head, or -1.
func contentLength(head []byte) int64 {
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if len(name) == 14 && bytes.EqualFold(name, []byte("content-length")) {
			if length, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil {
				return length
			}
		}
	}
	return -1
}

// serveHTTP serves requests until it fails, with TLS if settings are given.
func serveHTTP(address string, settings *tls.Config) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if settings != nil {
		listener = tls.NewListener(listener, settings)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			for reader := bufio.NewReaderSize(connection, 64*1024); ; {
				if answerNext(connection, reader) != nil {
					return
				}
			}
		}()
	}
}

// answerNext answers a request with 1 KiB of JSON, with as many bytes as ?bytes=, or with events at the
// interval ?every=; it reads and drops the request's body.
func answerNext(connection net.Conn, reader *bufio.Reader) error {
	head, err := peekHead(reader)
	if err != nil {
		return err
	}
	size := len(head)
	method, rest, _ := bytes.Cut(head, []byte(" "))
	target, _, _ := bytes.Cut(rest, []byte(" "))
	if bytes.IndexByte(target, '?') < 0 && string(method) == "GET" {
		reader.Discard(size)
		_, err = connection.Write(small)
		return err
	}
	where, err := url.Parse(string(target))
	if err != nil {
		return err
	}
	body := int64(0)
	if string(method) == "POST" {
		if body = contentLength(head); body < 0 {
			return errors.New("body of unknown length")
		}
	}
	reader.Discard(size)
	if err := receive(reader, body); err != nil {
		return err
	}
	if every, err := time.ParseDuration(where.Query().Get("every")); err == nil {
		return sendEvents(connection, every)
	}
	if octets, err := strconv.ParseInt(where.Query().Get("bytes"), 10, 64); err == nil {
		if _, err := fmt.Fprintf(connection, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", octets); err != nil {
			return err
		}
		return send(connection, octets)
	}
	_, err = connection.Write(small)
	return err
}

// sendEvents sends events like a watch, one per chunk, starting at a different moment for each watch; each event
// contains the time at which it was sent.
func sendEvents(connection net.Conn, every time.Duration) error {
	if _, err := io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	time.Sleep(rand.N(every))
	for ticker := time.NewTicker(every); ; <-ticker.C {
		event := append(make([]byte, 0, eventSize+16), fmt.Sprintf("%x\r\n", eventSize)...)
		begin := len(event)
		event = append(event, fmt.Sprintf(`{"sent":%d,"type":"MODIFIED","object":"`, time.Now().UnixNano())...)
		event = append(event, block[:eventSize-len(event)+begin-3]...)
		if _, err := connection.Write(append(event, "\"}\n\r\n"...)); err != nil {
			ticker.Stop()
			return err
		}
	}
}
