// Divides its CPU time 3 : 1 between two functions, for ever.
package main

import "fmt"

var sink int

//go:noinline
func heavy() {
	for turn := 0; turn < 12000000; turn++ {
		sink += turn
	}
}

//go:noinline
func light() {
	for turn := 0; turn < 4000000; turn++ {
		sink += turn
	}
}

func main() {
	fmt.Println("ready")
	for {
		heavy()
		light()
	}
}
