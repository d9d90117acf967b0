package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"

	"golang.org/x/crypto/ssh"
)

// answerChannels accepts every channel and answers HTTP in it by itself, with TLS if its target is the API server.
func (t *tunnel) answerChannels(config v1Config, secure *tls.Config) {
	for request := range t.channels {
		channel, requests, err := request.Accept()
		if err != nil {
			log.Print("channel: ", err)
			continue
		}
		go ssh.DiscardRequests(requests)
		var conn net.Conn = channelConn{channel, t.Conn}
		if string(request.ExtraData()) == config.KubernetesSvcHost {
			conn = tls.Server(conn, secure)
		}
		go answer(conn, config.Name)
	}
}

// answer returns the cluster's name and the request's credential to each request.
func answer(conn net.Conn, name string) {
	defer conn.Close()
	for reader := bufio.NewReader(conn); ; {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		io.Copy(io.Discard, request.Body)
		said := fmt.Sprintf("%s %s\n", name, request.Header.Get("Authorization"))
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said)
	}
}
