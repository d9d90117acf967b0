package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// transfer downloads or uploads one body.
func transfer(arguments []string) error {
	flags := flag.NewFlagSet("load transfer", flag.ExitOnError)
	direction := flags.String("direction", "down", "down or up")
	size := flags.Int64("bytes", 256<<20, "length of the body")
	duration := flags.Duration("for", 0, "maximum duration of a download; 0: unlimited")
	find := addFlags(flags)
	flags.Parse(arguments)
	way, err := find()
	if err != nil {
		return err
	}
	target := way.target
	connection, err := way.dial(target.Host, target.Scheme == "https")
	if err != nil {
		return err
	}
	defer connection.Close()
	down := *direction == "down"
	begin := time.Now()
	if down {
		fmt.Fprintf(connection, "GET %s?bytes=%d HTTP/1.1\r\nHost: %s\r\n%s\r\n", target.Path, *size, target.Host, way.bearer)
	} else {
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n", target.Path, target.Host, way.bearer, *size)
		if err := send(connection, *size); err != nil {
			return err
		}
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(connection, 16*1024), nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", target, response.Status)
	}
	if !down {
		_, err = io.Copy(io.Discard, response.Body)
	} else if *duration > 0 {
		connection.SetReadDeadline(begin.Add(*duration))
		if *size, err = io.Copy(io.Discard, response.Body); errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	} else {
		err = receive(response.Body, *size)
	}
	if err != nil {
		return err
	}
	return report(*size, time.Since(begin))
}
