//! A host program with a worker inside: tasks come in by HTTP and run as processes of this machine.
//!
//! ```text
//! cargo run --example studio -- 8080 sqlite:studio.db echo,sleep
//! curl -H 'content-type: application/json' http://127.0.0.1:8080/tasks -d '{"action_kind": "command",
//!     "execution_target": "host", "args": {"action_command": "echo", "action_command_args": ["hello"]}}'
//! ```
//!
//! There is no authentication: whoever reaches the port may run the allowed commands. So it listens on the loopback
//! address only, and asks of each request what the page of a stranger in a browser cannot give: this host's name, and
//! JSON that is declared as such.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, guard, web};
use leasehold::db::StoreUrl;
use leasehold::domain::allow::AllowList;
use leasehold::domain::ending::{ExecuteError, Execution};
use leasehold::domain::task::TaskApplication;
use leasehold::execute::{Adapter, AdapterTask};
use leasehold::{Error, Handle, Runtime, RuntimeConfig};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How long running tasks may take to end after ctrl-c.
const DRAIN: Duration = Duration::from_secs(30);

#[actix_web::main]
async fn main() -> io::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let mut word = |default: &str| words.next().unwrap_or_else(|| default.to_owned());
    let port: u16 = word("8080").parse().map_err(io::Error::other)?;
    let store = StoreUrl::parse(&word("sqlite:studio.db")).map_err(io::Error::other)?;
    let mut config = RuntimeConfig::new(store);
    config.queue.allow_commands = AllowList::parse(&word("echo"));
    // Where `li` is found, for agents; the library itself reads no environment.
    config.launch.li.path = std::env::var_os("PATH");
    config.launch.adapters.in_process("greet", Greet).map_err(io::Error::other)?;

    let rules = config.submit_rules();
    let runtime = Runtime::start(config).map_err(io::Error::other)?;
    let handle = runtime.handle();
    let (shared, rules) = (web::Data::new(handle.clone()), web::Data::new(rules));
    let server = HttpServer::new(move || {
        let here = guard::Any(guard::Host("127.0.0.1")).or(guard::Host("localhost"));
        let routes = web::scope("")
            .guard(here)
            .route("/tasks", web::post().to(submit))
            .route("/tasks/{id}", web::get().to(show))
            .route("/health", web::get().to(health));
        App::new().app_data(shared.clone()).app_data(rules.clone()).service(routes)
    })
    .workers(1)
    .bind(("127.0.0.1", port))?;
    for address in server.addrs() {
        println!("listening on http://{address}");
    }

    tokio::select! {
        // Ends at ctrl-c: no more requests from here on.
        served = server.run() => served?,
        // The worker has ended by itself; why, its exit code says.
        () = handle.ended() => {}
    }
    handle.shut_down(DRAIN);
    tokio::select! {
        () = handle.ended() => {}
        _ = tokio::signal::ctrl_c() => handle.shut_down_now(),
    }
    Ok(ExitCode::from(runtime.join().code()))
}

/// A kind of this host's own, which runs inside it: `{"action_kind": "greet", "execution_target": "host", "args":
/// {"name": "Ada"}}`.
struct Greet;

impl Adapter for Greet {
    async fn run(
        &self,
        task: AdapterTask,
        cancelled: CancellationToken,
    ) -> Result<Execution, ExecuteError> {
        let Some(name) = task.run.action_args.get("name").and_then(Value::as_str) else {
            let message = "whom? give a name".to_owned();
            return Err(ExecuteError { kind: "NoName".to_owned(), message });
        };
        // Where a longer task would do its work, it listens to the token meanwhile.
        if !cancelled.is_cancelled() {
            writeln!(io::stdout(), "hello {name}").unwrap_or_default();
        }
        Ok(Execution::OK)
    }
}

type Rules = leasehold::domain::task::SubmitRules;

async fn submit(
    request: HttpRequest,
    body: String,
    handle: web::Data<Handle>,
    rules: web::Data<Rules>,
) -> HttpResponse {
    let kind = request.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "application/json") {
        let error = json!({"error": "send application/json", "code": "media_type"});
        return HttpResponse::UnsupportedMediaType().json(error);
    }
    let app = match TaskApplication::from_json_text(&body, &rules) {
        Ok(app) => app,
        Err(refusal) => return refused(&refusal.into()),
    };
    match handle.submit(&app).await {
        Ok(id) => HttpResponse::Created().json(json!({ "id": id })),
        Err(error) => refused(&error),
    }
}

async fn show(id: web::Path<String>, handle: web::Data<Handle>) -> HttpResponse {
    match handle.find(&id).await {
        Ok(Some(run)) => HttpResponse::Ok().json(run),
        Ok(None) => HttpResponse::NotFound().json(json!({"error": "there is no such task"})),
        Err(error) => refused(&error),
    }
}

/// Healthy is who can read the store.
async fn health(handle: web::Data<Handle>) -> HttpResponse {
    match handle.is_work_left().await {
        Ok(busy) => HttpResponse::Ok().json(json!({"worker": handle.worker_id(), "busy": busy})),
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> HttpResponse {
    let status = match error.code() {
        "overloaded" => StatusCode::TOO_MANY_REQUESTS,
        _ if error.is_invalid() => StatusCode::BAD_REQUEST,
        _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    HttpResponse::build(status).json(json!({"error": error.to_string(), "code": error.code()}))
}
