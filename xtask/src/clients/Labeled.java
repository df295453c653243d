import io.pyroscope.labels.v2.LabelsSet;
import io.pyroscope.labels.v2.Pyroscope;

/** {@link Work}, and a thread that computes with labels. */
public class Labeled {
    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Work.nanoseconds(args);
        LabelsSet labels = new LabelsSet("task", "checkout", "region", "eu");
        Thread labeled = new Thread(() -> Pyroscope.LabelsWrapper.run(labels, () -> Work.compute(end)), "labeled");
        labeled.start();
        Work.main(args);
        labeled.join();
    }
}
