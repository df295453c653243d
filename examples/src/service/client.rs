//! A client of the document store that knows every answer in advance and checks it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use emberline_agent::Direction;

use super::{Document, LINE_BYTES_MAX, hash_text, sum_values};
use crate::fleet::context::{Context, Interrupt, Step};
use crate::fleet::link::Link;
use crate::wire::WireError;

/// Documents that one client keeps in the store.
const DOCUMENTS: usize = 32;
const VALUES_PER_DOCUMENT: u64 = 500;
/// Documents replaced and read back in one task.
const REQUESTS_PER_TASK: usize = 4;
/// Pause between two tasks. Two clients make about 300 requests a second; without the pause they
/// would keep a core busy.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause between attempts to reach an unavailable service.
const RETRY: Duration = Duration::from_secs(1);

/// Talks to the service at `address` until the stop; retries while it is unavailable.
///
/// # Errors
/// If an answer is wrong.
pub(crate) fn run(
    context: &Context,
    number: usize,
    peer: usize,
    address: SocketAddr,
) -> anyhow::Result<()> {
    let mut noted = false;
    loop {
        match converse(context, number, peer, address) {
            Err(Interrupt::Failed(error)) => return Err(error),
            Err(lost @ Interrupt::Lost { .. }) if !noted => {
                context.note(format!(
                    "client-{number}: {lost}; trying again every second"
                ));
                noted = true;
            }
            Ok(()) | Err(_) => {}
        }
        if context.stop.wait_for(RETRY) {
            return Ok(());
        }
    }
}

fn converse(context: &Context, number: usize, peer: usize, address: SocketAddr) -> Step<()> {
    let link = Link::dial(context, peer, address)
        .map_err(|error| context.lost(peer, WireError::Io(error)))?;
    let connection = BufReader::new(link);
    let mut client = Client {
        context,
        number,
        peer,
        connection,
        documents: Vec::new(),
        sent: 0,
    };
    client.in_task(Client::fill)?;
    while !context.stop.wait_for(PAUSE) {
        client.in_task(Client::replace_and_check)?;
    }
    Ok(())
}

struct Client<'a> {
    context: &'a Context,
    number: usize,
    peer: usize,
    connection: BufReader<Link>,
    /// The store's content for this client: the text, and the sum of its values.
    documents: Vec<(String, u64)>,
    /// Documents sent so far; makes each one different.
    sent: u64,
}

impl Client<'_> {
    fn in_task(&mut self, work: impl FnOnce(&mut Self) -> Step<()>) -> Step<()> {
        let task = self
            .context
            .task("client", format!("client-{}-{}", self.number, self.sent));
        match work(self) {
            Ok(()) => Ok(()),
            Err(Interrupt::Lost { peer, cause }) => Err(self.context.lost_in(task, peer, cause)),
            Err(other) => {
                task.fail(&other);
                Err(other)
            }
        }
    }

    /// Puts the first version of each document, whatever an earlier connection left.
    #[inline(never)]
    fn fill(&mut self) -> Step<()> {
        for slot in 0..DOCUMENTS {
            self.documents.push((String::new(), 0));
            self.put(slot)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn replace_and_check(&mut self) -> Step<()> {
        for _ in 0..REQUESTS_PER_TASK {
            let slot = self.sent as usize % DOCUMENTS;
            self.put(slot)?;
            self.get(slot)?;
        }
        self.sum()
    }

    fn put(&mut self, slot: usize) -> Step<()> {
        let (json, sum) = write_document(self.sent)?;
        self.sent += 1;
        let request = format!("PUT client-{}/{slot} {json}\n", self.number);
        let expected = format!("OK {:016x}", hash_text(&json));
        self.documents[slot] = (json, sum);
        self.ask(&request, &expected)
    }

    fn get(&mut self, slot: usize) -> Step<()> {
        let expected = format!("VALUE {}", self.documents[slot].0);
        self.ask(&format!("GET client-{}/{slot}\n", self.number), &expected)
    }

    fn sum(&mut self) -> Step<()> {
        let total = self
            .documents
            .iter()
            .fold(0u64, |total, (_, sum)| total.wrapping_add(*sum));
        self.ask(
            &format!("SUM client-{}/\n", self.number),
            &format!("TOTAL {total}"),
        )
    }

    fn ask(&mut self, request: &str, expected: &str) -> Step<()> {
        let answer = self
            .exchange_lines(request)
            .map_err(|cause| Interrupt::Lost {
                peer: self.peer,
                cause,
            })?;
        if answer == expected {
            return Ok(());
        }
        let answer = shortened(&answer);
        let expected = shortened(expected);
        Err(anyhow!("wrong answer: {answer:?} instead of {expected:?}").into())
    }

    fn exchange_lines(&mut self, request: &str) -> Result<String, WireError> {
        self.connection
            .get_mut()
            .send_bytes(request.as_bytes(), "request")?;
        let from = self.connection.get_ref().bytes();
        // Until the first bytes arrive, the time is the service's.
        if self
            .connection
            .fill_buf()
            .map_err(WireError::Io)?
            .is_empty()
        {
            return Err(WireError::Closed);
        }
        let mut line = String::new();
        let answer = (&mut self.connection)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line);
        let link = self.connection.get_mut();
        link.transfer(Direction::Incoming, "answer", from, |_| Ok(()))?;
        match answer {
            Ok(_) if !line.ends_with('\n') => Err(WireError::Truncated),
            Ok(_) => {
                line.pop();
                Ok(line)
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                Err(WireError::Malformed("an answer that is not UTF-8"))
            }
            Err(error) => Err(WireError::Io(error)),
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect::<String>()
}

/// A document's text and the sum of its values.
fn write_document(id: u64) -> Step<(String, u64)> {
    let values =
        (0..VALUES_PER_DOCUMENT).map(|value| id.wrapping_mul(31).wrapping_add(value * value));
    let document = Document {
        id,
        values: values.collect(),
    };
    let json = serde_json::to_string(&document).map_err(anyhow::Error::from)?;
    Ok((json, sum_values(&document)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;
    use crate::service::serve;

    /// A client against the real server: its documents, their reads and their sum all agree, and
    /// every request is one task of the server.
    #[test]
    fn a_client_and_the_server_agree() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Context::new(3, 0);
        let asking = Context::new(0, 0);
        let server = {
            let serving = serving.clone();
            std::thread::spawn(move || serve(&serving, listener))
        };
        let link = Link::dial(&asking, 3, address).unwrap();
        let mut client = new_client(&asking, link);
        client.in_task(Client::fill).unwrap();
        (0..10).for_each(|_| client.in_task(Client::replace_and_check).unwrap());
        serving.stop.set();
        server.join().unwrap().unwrap();
        let requests = (DOCUMENTS + 10 * (2 * REQUESTS_PER_TASK + 1)) as u64;
        assert_eq!(serving.recorder.snapshot().tasks["request"].ok, requests);
        assert_eq!(asking.recorder.snapshot().tasks["client"].ok, 11);

        let gone = client.in_task(Client::replace_and_check);
        assert!(
            matches!(gone, Err(Interrupt::Lost { peer: 3, .. })),
            "{gone:?}"
        );
        assert_eq!(asking.recorder.snapshot().tasks["client"].failed, 1);
    }

    /// A wrong answer fails the task and the role.
    #[test]
    fn a_wrong_answer_is_an_error() {
        let asking = Context::new(0, 0);
        let lying = Context::new(3, 0);
        let (link, mut liar) = crate::fleet::link::pair(&asking, &lying);
        liar.write_all(b"OK 0000000000000000\n").unwrap();
        let wrong = new_client(&asking, link).in_task(Client::fill);
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .contains("wrong answer: \"OK 0000")
        );
        assert_eq!(asking.recorder.snapshot().tasks["client"].failed, 1);
    }

    fn new_client(context: &Context, link: Link) -> Client<'_> {
        let connection = BufReader::new(link);
        Client {
            context,
            number: 0,
            peer: 3,
            connection,
            documents: Vec::new(),
            sent: 0,
        }
    }
}
