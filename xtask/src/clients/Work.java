import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.locks.LockSupport;

/** Computes, sleeps, parks, and waits for a monitor, a socket and a file, as many seconds as its argument says. */
public class Work {
    static final Object LOCK = new Object();
    static volatile double sink;

    /** What a thread does. */
    interface Job {
        void run() throws Exception;
    }

    static long nanoseconds(String[] args) {
        return Long.parseLong(args[0]) * 1_000_000_000L;
    }

    static Thread start(String name, Job job) {
        Runnable checked = () -> {
            try {
                job.run();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        Thread thread = new Thread(checked, name);
        thread.start();
        return thread;
    }

    static void compute(long end) {
        while (System.nanoTime() < end) {
            double sum = 0;
            for (int number = 1; number < 10_000; number++) {
                sum += Math.sqrt(number) / (number + sum);
            }
            sink = sum;
        }
    }

    static void holdLock() throws Exception {
        synchronized (LOCK) {
            Thread.sleep(100);
        }
    }

    static void waitForLock() {
        synchronized (LOCK) {
            sink += 1;
        }
    }

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + nanoseconds(args);
        ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Thread computing = start("computing", () -> compute(end));
        Thread answering = start("answering", () -> {
            try (Socket socket = server.accept()) {
                OutputStream out = socket.getOutputStream();
                while (System.nanoTime() < end) {
                    Thread.sleep(50);
                    out.write(1);
                }
            }
        });
        Thread reading = start("reading", () -> {
            try (Socket socket = new Socket(server.getInetAddress(), server.getLocalPort())) {
                InputStream in = socket.getInputStream();
                while (in.read() >= 0) {
                    sink += 1;
                }
            }
        });
        File file = File.createTempFile("work", ".tmp");
        file.deleteOnExit();
        while (System.nanoTime() < end) {
            Thread holder = start("holder", Work::holdLock);
            Thread.sleep(20);
            waitForLock();
            holder.join();
            LockSupport.parkNanos(30_000_000);
            try (FileOutputStream out = new FileOutputStream(file)) {
                out.write(new byte[1 << 20]);
                out.getFD().sync();
            }
        }
        computing.join();
        answering.join();
        reading.join();
    }
}
