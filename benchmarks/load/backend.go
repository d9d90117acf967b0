package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"io"
	"net"
)

// block is the unit of bulk data.
var block = bytes.Repeat([]byte("0123456789abcdef"), 16*1024)

// backend serves until it fails.
func backend(arguments []string) error {
	flags := flag.NewFlagSet("load backend", flag.ExitOnError)
	stream := flags.String("stream", "127.0.0.1:9100", "`address` for raw streams")
	plain := flags.String("http", "127.0.0.1:9101", "`address` for HTTP")
	secure := flags.String("https", "", "`address` for HTTPS, with --cert and --key")
	certificate, key := flags.String("cert", "", "`file`"), flags.String("key", "", "`file`")
	flags.Parse(arguments)
	failed := make(chan error)
	go func() { failed <- serveStreams(*stream) }()
	go func() { failed <- serveHTTP(*plain, nil) }()
	if *secure != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			return err
		}
		go func() { failed <- serveHTTP(*secure, &tls.Config{Certificates: []tls.Certificate{pair}}) }()
	}
	return <-failed
}

func send(w io.Writer, size int64) error {
	for size > 0 {
		piece := block[:min(size, int64(len(block)))]
		if _, err := w.Write(piece); err != nil {
			return err
		}
		size -= int64(len(piece))
	}
	return nil
}

// serveStreams serves the protocol of bulk: a direction and a size, then the bytes; one byte confirms an upload.
func serveStreams(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			header := make([]byte, 9)
			for {
				if _, err := io.ReadFull(connection, header); err != nil {
					return
				}
				size := int64(binary.BigEndian.Uint64(header[1:]))
				if header[0] == 'D' {
					if send(connection, size) != nil {
						return
					}
				} else {
					if receive(connection, size) != nil {
						return
					}
					connection.Write([]byte{1})
				}
			}
		}()
	}
}

func receive(r io.Reader, size int64) error {
	buffer := make([]byte, 256*1024)
	for size > 0 {
		n, err := r.Read(buffer[:min(size, int64(len(buffer)))])
		if size -= int64(n); err != nil && size > 0 {
			return err
		}
	}
	return nil
}
