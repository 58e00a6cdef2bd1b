//! `capabilities.json`: routing, as functions.

use std::collections::HashSet;

use leasehold::domain::capability::{CapabilityClass, CapabilityClasses};
use serde_json::{Value, json};

use crate::store_support::classes;
use crate::support::{Case, Outcome, Report, directory};

pub fn run() -> Report {
    Report::of(&directory(), "capabilities", "pure", check)
}

fn check(case: &Case) -> Outcome {
    let input = case.get("input");
    let args = &input["args"];
    let expected = &case.get("expect")["value"];
    let got = call(&classes(case), input["fn"].as_str().unwrap(), args);
    if got == *expected { Outcome::Passed } else { Outcome::failed(expected, got) }
}

fn call(classes: &CapabilityClasses, function: &str, args: &Value) -> Value {
    let required = list(&args["required_capabilities"]);
    let advertised: HashSet<String> = list(&args["advertised_capabilities"]).into_iter().collect();
    match function {
        "capability_class" => json!(match classes.class_of(args["token"].as_str().unwrap()) {
            CapabilityClass::Eligibility => "eligibility",
            CapabilityClass::Serialization => "serialization",
            CapabilityClass::Affinity => "affinity",
        }),
        "worker_can_serve" => json!(classes.can_serve(&required, &advertised)),
        "affinity_score" => json!(classes.affinity_score(&required, &advertised)),
        "matching_tokens" => json!(classes.matching_tokens(&list(&args["tokens"]))),
        "host_scoped_concurrency_key" => {
            json!(classes.concurrency_key(args["host"].as_str().unwrap(), &required))
        }
        other => panic!("no function {other}"),
    }
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}
