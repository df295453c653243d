// Pushes every profile type to the collector of its only argument while two goroutines compute, allocate and wait for a
// mutex. Fails if the client logs an error.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grafana/pyroscope-go"
)

const length = 12 * time.Second

type logger struct{ errors atomic.Int64 }

func (*logger) Infof(string, ...interface{})  {}
func (*logger) Debugf(string, ...interface{}) {}
func (l *logger) Errorf(format string, values ...interface{}) {
	l.errors.Add(1)
	fmt.Fprintf(os.Stderr, format+"\n", values...)
}

var (
	mutex sync.Mutex
	kept  []byte
)

//go:noinline
func compute(until time.Time) {
	for sum := 0; time.Now().Before(until); sum++ {
	}
}

//go:noinline
func waitForMutex() {
	mutex.Lock()
	kept = make([]byte, 1<<16)
	compute(time.Now().Add(5 * time.Millisecond))
	mutex.Unlock()
}

func main() {
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	log := &logger{}
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: "go-client",
		ServerAddress:   os.Args[1],
		UploadRate:      4 * time.Second,
		Logger:          log,
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU,
			pyroscope.ProfileAllocObjects, pyroscope.ProfileAllocSpace,
			pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace,
			pyroscope.ProfileGoroutines,
			pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration,
		},
	})
	if err != nil {
		panic(err)
	}
	until := time.Now().Add(length)
	var done sync.WaitGroup
	for range 2 {
		done.Add(1)
		go func() {
			defer done.Done()
			for time.Now().Before(until) {
				waitForMutex()
			}
		}()
	}
	done.Wait()
	if err := profiler.Stop(); err != nil {
		panic(err)
	}
	if count := log.errors.Load(); count > 0 {
		fmt.Fprintf(os.Stderr, "the client logged %d errors\n", count)
		os.Exit(1)
	}
}
