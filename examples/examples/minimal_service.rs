//! A tokio server that sorts numbers, and a client that asks it to, for ten seconds.

use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("EMBERLINE_URL").unwrap_or("http://127.0.0.1:4747".into());
    let agent = emberline_agent::Agent::builder().collector(url);
    let _agent = agent.worker("service").start()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = BufReader::new(TcpStream::connect(listener.local_addr()?).await?);
    tokio::spawn(serve(listener.accept().await?.0));
    let begun = Instant::now();
    let mut answers = String::new();
    while begun.elapsed() < Duration::from_secs(10) {
        client.write_all(b"100000\n").await?;
        client.read_line(&mut answers).await?;
    }
    println!("{} answers", answers.lines().count());
    Ok(())
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut requests = BufReader::new(reader).lines();
    while let Some(request) = requests.next_line().await? {
        // The task's guard is inside: after an await this code may run on another thread.
        writer.write_all(&handle_request(&request)).await?;
    }
    Ok(())
}

fn handle_request(request: &str) -> Vec<u8> {
    let _task = emberline_agent::task("request").key(request).start();
    let count = request.parse().unwrap_or(1);
    let mut numbers: Vec<u64> = (0..count).map(|n| n * n % 7_919).collect();
    numbers.sort_unstable();
    format!("{:?}\n", numbers.get(numbers.len() / 2)).into_bytes()
}
