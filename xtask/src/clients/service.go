// Computes, and serves its profile. Prints its address.
package main

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
)

//go:noinline
func fibonacci(number int) int {
	if number < 2 {
		return number
	}
	return fibonacci(number-1) + fibonacci(number-2)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		for {
			fibonacci(25)
		}
	}()
	panic(http.Serve(listener, nil))
}
