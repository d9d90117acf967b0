package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// A `way` has the settings for opening and authenticating connections.
type way struct {
	settings *tls.Config
	target   *url.URL
	bearer   string
	stream   string
}

// addFlags returns a function that returns the settings after the flags are parsed.
func addFlags(flags *flag.FlagSet) func() (*way, error) {
	address := flags.String("url", "http://127.0.0.1:9101/", "`URL` of the backend or of a system in front of it")
	path := flags.String("path", "", "path to append to the URL")
	authority := flags.String("ca", "", "`file` with the CA certificate of https URLs")
	certificate := flags.String("cert", "", "`file` with a client certificate, with -key")
	key := flags.String("key", "", "`file` with its key")
	bearer := flags.String("bearer-file", "", "`file` with a bearer token")
	stream := flags.String("stream", "", "`URL` of a raw stream to use: https://HOST:PORT/clusters/NAME/targets/NAME")
	full := flags.Bool("full", false, "full TLS handshakes, without session resumption")
	return func() (*way, error) {
		target, err := url.Parse(*address + *path)
		if err != nil {
			return nil, err
		}
		w := &way{settings: &tls.Config{SessionTicketsDisabled: *full}, target: target, stream: *stream}
		if !*full {
			w.settings.ClientSessionCache = tls.NewLRUClientSessionCache(64)
		}
		if *bearer != "" {
			token, err := os.ReadFile(*bearer)
			if err != nil {
				return nil, err
			}
			w.bearer = "Authorization: Bearer " + strings.TrimSpace(string(token)) + "\r\n"
		}
		if *certificate != "" {
			pair, err := tls.LoadX509KeyPair(*certificate, *key)
			if err != nil {
				return nil, err
			}
			w.settings.Certificates = []tls.Certificate{pair}
		}
		if *authority != "" {
			pem, err := os.ReadFile(*authority)
			if err != nil {
				return nil, err
			}
			w.settings.RootCAs = x509.NewCertPool()
			w.settings.RootCAs.AppendCertsFromPEM(pem)
		}
		return w, nil
	}
}

// dial connects to address, or opens the raw stream if one is set; the stream then determines the target.
func (w *way) dial(address string, secure bool) (net.Conn, error) {
	if w.stream != "" {
		return w.openStream()
	}
	if secure {
		return tls.Dial("tcp", address, w.settings)
	}
	return net.Dial("tcp", address)
}

func (w *way) openStream() (net.Conn, error) {
	target, err := url.Parse(w.stream)
	if err != nil {
		return nil, err
	}
	connection, err := tls.Dial("tcp", target.Host, w.settings)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: %s\r\n%sConnection: Upgrade\r\nUpgrade: tower-stream\r\n\r\n",
		target.RequestURI(), target.Host, w.bearer)
	connection.SetDeadline(time.Now().Add(10 * time.Second))
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("%s: %s", w.stream, response.Status)
	}
	if reader.Buffered() > 0 {
		return nil, errors.New("unexpected bytes from the target")
	}
	return connection, connection.SetDeadline(time.Time{})
}
