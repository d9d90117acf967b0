// Command xcrypto is the other side of Tower's SSH, made of golang.org/x/crypto/ssh.
//
//	xcrypto client ADDRESS   connects, sends bytes through one channel and compares the echo
//	xcrypto server           accepts connections and channels, and echoes; prints its address first
//
// Keys are changed after -rekey bytes.  The last line of a client that succeeded is "ok" and the key exchange.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

var (
	keyFile = flag.String("key", "", "file with our private `key`, the client's or the host's")
	peer    = flag.String("peer", "", "`fingerprint` of the other side's key")
	user    = flag.String("user", "", "user `name`, a client's only")
	cipher  = flag.String("cipher", "", "the one `cipher` to offer; all if empty")
	kex     = flag.String("kex", "", "the one key exchange to offer; all if empty")
	rekey   = flag.Uint64("rekey", 0, "change keys after so many `bytes`")
	size    = flag.Int("size", 1<<20, "`bytes` to send")
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "xcrypto [FLAGS] client ADDRESS | xcrypto [FLAGS] server")
		flag.PrintDefaults()
	}
	flag.Parse()
	text, err := os.ReadFile(*keyFile)
	if err != nil {
		log.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		log.Fatal(err)
	}
	switch flag.Arg(0) {
	case "client":
		err = client(flag.Arg(1), signer)
	case "server":
		err = serve(signer)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func config() ssh.Config {
	c := ssh.Config{RekeyThreshold: *rekey}
	if *cipher != "" {
		c.Ciphers = []string{*cipher}
	}
	if *kex != "" {
		c.KeyExchanges = []string{*kex}
	}
	return c
}

// expected reports whether a public key is that of -peer.
func expected(key ssh.PublicKey) error {
	if seen := ssh.FingerprintSHA256(key); seen != *peer {
		return fmt.Errorf("the key is %s", seen)
	}
	return nil
}

func client(address string, signer ssh.Signer) error {
	connection, err := ssh.Dial("tcp", address, &ssh.ClientConfig{
		Config:          config(),
		User:            *user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error { return expected(key) },
		Timeout:         10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, requests, err := connection.OpenChannel("echo", nil)
	if err != nil {
		return err
	}
	go ssh.DiscardRequests(requests)
	data := make([]byte, *size)
	rand.New(rand.NewSource(1)).Read(data)
	failed := make(chan error, 1)
	go func() {
		_, err := channel.Write(data)
		failed <- errors.Join(err, channel.CloseWrite())
	}()
	back, err := io.ReadAll(channel)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	if !bytes.Equal(back, data) {
		return fmt.Errorf("%d bytes came back, and not those that were sent", len(back))
	}
	algorithms := connection.Conn.(ssh.AlgorithmsConnMetadata).Algorithms()
	fmt.Println("ok", algorithms.KeyExchange)
	return nil
}

func serve(signer ssh.Signer) error {
	configuration := &ssh.ServerConfig{
		Config: config(),
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			return nil, expected(key)
		},
	}
	configuration.AddHostKey(signer)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := talk(connection, configuration); err != nil {
				log.Print(err)
			}
		}()
	}
}

// talk echoes on every channel of one connection.
func talk(connection net.Conn, configuration *ssh.ServerConfig) error {
	_, channels, requests, err := ssh.NewServerConn(connection, configuration)
	if err != nil {
		return err
	}
	go ssh.DiscardRequests(requests)
	for opened := range channels {
		channel, requests, err := opened.Accept()
		if err != nil {
			return err
		}
		go ssh.DiscardRequests(requests)
		go func() {
			io.Copy(channel, channel)
			channel.Close()
		}()
	}
	return nil
}
