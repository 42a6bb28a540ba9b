//! The chart's own values, one row each: what a cluster needs to know besides the settings of the gateways.

use Shape::{Integer, Object, Objects, Switch, Text, TextMap, Texts, Word};

/// One value of the chart.
#[derive(Debug)]
pub(super) struct ChartValue {
    /// Its name; dots lead into tables.
    pub(super) path: &'static str,
    /// What it does, in sentences.
    pub(super) meaning: &'static str,
    /// What it may be.
    pub(super) shape: Shape,
    /// The value when nothing is given, as JSON, which is YAML too.
    pub(super) default: &'static str,
}

/// What a value may be. The contents of objects are Kubernetes' own, whose API server checks them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// A text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// True or false.
    Switch,
    /// A whole number between two.
    Integer(u64, u64),
    /// An object.
    Object,
    /// An object of texts.
    TextMap,
    /// A list of texts.
    Texts,
    /// A list of objects.
    Objects,
}

impl ChartValue {
    /// The table that it is in, and its name there.
    pub(super) fn place(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('.').unwrap_or(("", self.path))
    }
}

/// The values as rows: what each does as its doc comment, its name, what it may be, and its default.
macro_rules! chart_values {
    (
        $(#[$attribute:meta])* $vis:vis const $name:ident;
        $($(#[doc = $meaning:literal])+ $path:literal: $shape:expr => $default:literal;)+
    ) => {
        $(#[$attribute])*
        $vis const $name: &[ChartValue] = &[$(ChartValue {
            path: $path,
            meaning: concat!($($meaning),+).trim_ascii_start(),
            shape: $shape,
            default: $default,
        }),+];
    };
    (
        $(#[$attribute:meta])* $vis:vis const $name:ident;
        $($(#[doc = $meaning:literal])+ $path:literal;)+
    ) => {
        $(#[$attribute])*
        $vis const $name: &[(&str, &str)] =
            &[$(($path, concat!($($meaning),+).trim_ascii_start())),+];
    };
}

/// What `settings` is.
pub(super) const SETTINGS: &str = "The settings of the gateways, named as in the settings file. The chart sets the others \
     itself: the addresses, the paths below its volumes, and the files of the keys above.";

/// The settings that follow from the chart's own values, and so are no values.
pub(super) const SET_BY_CHART: &[&str] = &[
    "listen.address",
    "store.path",
    "worker.name",
    "worker.peer_listen",
    "worker.peer_advertise",
    "worker.fleet_keys_file",
    "code.base_dir",
    "auth.api_keys_file",
];

/// Settings with another default in the chart, and why.
pub(super) const DEFAULTS: &[(&str, &str, &str)] = &[
    (
        "worker.stop_patience_ms",
        "35000",
        "Longer than a run of code may take by default; terminationGracePeriodSeconds follows from it.",
    ),
    (
        "log.format",
        "json",
        "Clusters collect logs by their fields.",
    ),
];

/// The default of a setting in the chart, and why it is another one.
pub(super) fn default_of(key: &str) -> Option<(&'static str, &'static str)> {
    let row = DEFAULTS.iter().find(|(name, _, _)| *name == key);
    row.map(|(_, value, reason)| (*value, *reason))
}

chart_values! {
    /// What tables of values are about.
    pub(super) const GROUPS;
    /// The image of the gateways: the target `gateway`, or `gateway-slim` without language runtimes.
    "image";
    /// The keys of callers, where `settings.auth.mode` is `api-key`.
    "apiKeys";
    /// Where session records are: in the Redis of this chart, or in one that is there already.
    "redis";
    /// The image of this Redis: the target `redis`, or `valkey`.
    "redis.image";
    /// Its volume.
    "redis.storage";
    /// The keys by which gateways know each other. They are needed as soon as there is a Redis.
    "fleetKeys";
    /// The volume for the files of code sessions. All gateways mount it. Without it, one gateway keeps them in its
    /// pod.
    "volume";
    /// What the tier `strict` of the sandbox needs of a node. Without effect where no server is of kind `code`, and
    /// where `settings.code.isolation` is `degraded`.
    "sandbox";
    /// The gateways ask nothing of the API server; no token is mounted.
    "serviceAccount";
    /// The address of the gateways in the cluster. It needs no sticky sessions.
    "service";
    /// The address outside. It serves the paths for clients alone, not the metrics.
    "ingress";
    /// A HorizontalPodAutoscaler for the gateways.
    "autoscaling";
    /// How many gateways an eviction may stop at a time.
    "podDisruptionBudget";
    /// A NetworkPolicy: who may connect to gateways and Redis. Gateways may connect to everything.
    "networkPolicy";
    /// For the Prometheus operator and Grafana's sidecar: a ServiceMonitor, a PrometheusRule and the dashboards as
    /// ConfigMaps. Gateways then answer `/metrics` to everybody who can connect, unless
    /// `settings.listen.probe_detail` says otherwise.
    "monitoring";
}

chart_values! {
    /// The chart's own values, in the order in which people read them.
    pub(super) const VALUES;
    /// How many gateways. Without effect with `autoscaling.enabled`. Several gateways need a Redis.
    "replicaCount": Integer(0, 1000) => "2";
    /// Where it is.
    "image.repository": Text => r#""mooring-gateway""#;
    /// Empty: the chart's appVersion.
    "image.tag": Text => r#""""#;
    /// Such as `sha256:...`; then the tag does not count.
    "image.digest": Text => r#""""#;
    /// When the image is pulled.
    "image.pullPolicy": PULL_POLICY => r#""IfNotPresent""#;
    /// Secrets for the registry, such as `[{name: registry}]`.
    "imagePullSecrets": Objects => "[]";
    /// A Secret whose entry `keys.json` is a file that `mooring keys create` has made.
    "apiKeys.existingSecret": Text => r#""""#;
    /// Names of Secrets that settings read as files: each entry is `/etc/mooring/secrets/NAME/ENTRY`.
    "secretFiles": Texts => "[]";
    /// Environment variables of the gateways, for settings with `env:NAME`.
    "extraEnv": Objects => "[]";
    /// ConfigMaps and Secrets whose entries become environment variables, such as `[{secretRef: {name: tokens}}]`.
    "extraEnvFrom": Objects => "[]";
    /// Whether the chart runs a Redis with the module: one process with a volume. False, without `existingSecret`
    /// and `settings.store.url`, is one gateway with a file.
    "redis.enabled": Switch => "true";
    /// A Secret whose entry `url` is the address, with user and password. For the Redis of this chart it also has
    /// `users.acl`. Empty: the chart makes one, with passwords of its own.
    "redis.existingSecret": Text => r#""""#;
    /// Processor time and memory of this Redis.
    "redis.resources": Object => r#"{"requests": {"cpu": "250m", "memory": "256Mi"}}"#;
    /// Where it is.
    "redis.image.repository": Text => r#""mooring-redis""#;
    /// Empty: the chart's appVersion.
    "redis.image.tag": Text => r#""""#;
    /// When the image is pulled.
    "redis.image.pullPolicy": PULL_POLICY => r#""IfNotPresent""#;
    /// Its size.
    "redis.storage.size": Text => r#""8Gi""#;
    /// Empty: the cluster's default.
    "redis.storage.storageClass": Text => r#""""#;
    /// A Secret whose entry `fleet.keys` is the file. Empty: the chart makes one.
    "fleetKeys.existingSecret": Text => r#""""#;
    /// Whether there is one.
    "volume.enabled": Switch => "false";
    /// A claim that is there already. Empty: the chart makes one.
    "volume.existingClaim": Text => r#""""#;
    /// Several gateways need ReadWriteMany.
    "volume.accessMode": Word(&["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]) => r#""ReadWriteMany""#;
    /// Empty: the cluster's default, which is rarely one with ReadWriteMany.
    "volume.storageClass": Text => r#""""#;
    /// Its size.
    "volume.size": Text => r#""20Gi""#;
    /// The file with the seccomp profile, below `/var/lib/kubelet/seccomp` of each node. It has to be there before
    /// a gateway starts.
    "sandbox.seccompProfile": Text => r#""mooring/seccomp.json""#;
    /// Whether a DaemonSet writes that file on every node where gateways may run. It runs as root with that
    /// directory of the node, so the namespace has to admit such pods.
    "sandbox.seccompInstaller": Switch => "false";
    /// On nodes with AppArmor: the name of a profile that is loaded there (deploy/apparmor is `mooring`), or
    /// `unconfined`. Empty: the runtime's own, which denies mounts.
    "sandbox.appArmorProfile": Text => r#""""#;
    /// Processor time and memory of a gateway. With code, limit the memory to that of the gateway and of
    /// `settings.code.runs_at_once` runs, memory and disk.
    "resources": Object => r#"{"requests": {"cpu": "250m", "memory": "256Mi"}}"#;
    /// Whether the chart makes one.
    "serviceAccount.create": Switch => "true";
    /// Empty: the name of the release, or `default` where none is made.
    "serviceAccount.name": Text => r#""""#;
    /// Its annotations.
    "serviceAccount.annotations": TextMap => "{}";
    /// Its type.
    "service.type": Word(&["ClusterIP", "NodePort", "LoadBalancer"]) => r#""ClusterIP""#;
    /// Its port.
    "service.port": Integer(1, 65535) => "80";
    /// Its annotations.
    "service.annotations": TextMap => "{}";
    /// Whether there is one.
    "ingress.enabled": Switch => "false";
    /// The class of its controller. Empty: the cluster's default.
    "ingress.className": Text => r#""""#;
    /// The host name of the gateways. It is added to `settings.listen.allowed_hosts`.
    "ingress.host": Text => r#""""#;
    /// A Secret with the certificate of that name. Empty: no TLS.
    "ingress.tlsSecret": Text => r#""""#;
    /// Its annotations. Turn off the buffering of replies and raise the time-outs: docs/kubernetes.md has those of
    /// ingress-nginx.
    "ingress.annotations": TextMap => "{}";
    /// Whether there is one.
    "autoscaling.enabled": Switch => "false";
    /// Fewest gateways.
    "autoscaling.minReplicas": Integer(1, 1000) => "2";
    /// Most gateways.
    "autoscaling.maxReplicas": Integer(1, 1000) => "10";
    /// The use of the requested processor time that it aims at.
    "autoscaling.targetCPUUtilizationPercentage": Integer(1, 100) => "70";
    /// Whether there is one.
    "podDisruptionBudget.enabled": Switch => "true";
    /// Most gateways that are away at a time.
    "podDisruptionBudget.maxUnavailable": Integer(1, 1000) => "1";
    /// Whether there is one.
    "networkPolicy.enabled": Switch => "false";
    /// Who may connect to the gateways, Prometheus included, as `from` of an ingress rule. Empty: everybody.
    "networkPolicy.from": Objects => "[]";
    /// Whether there are any.
    "monitoring.enabled": Switch => "false";
    /// Labels by which Prometheus finds the ServiceMonitor and the PrometheusRule, such as `release: prometheus`.
    "monitoring.labels": TextMap => "{}";
    /// How often the gateways are asked.
    "monitoring.interval": Text => r#""30s""#;
    /// Labels by which Grafana finds the dashboards.
    "monitoring.dashboardLabels": TextMap => r#"{"grafana_dashboard": "1"}"#;
    /// How long a gateway keeps serving before it gets SIGTERM, so that the cluster's load balancers drop it first.
    "preStopSeconds": Integer(0, 120) => "5";
    /// The addresses of the cluster's pods; of those with both, the first.
    "ipFamily": Word(&["IPv4", "IPv6"]) => r#""IPv4""#;
    /// The security context of the gateways' pods. OpenShift chooses users itself: set `runAsUser`, `runAsGroup`
    /// and `fsGroup` to null there.
    "podSecurityContext": Object => r#"{"runAsNonRoot": true, "runAsUser": 1001, "runAsGroup": 1001, "fsGroup": 1001, "fsGroupChangePolicy": "OnRootMismatch"}"#;
    /// That of their containers. The seccomp profile follows from `sandbox`.
    "containerSecurityContext": Object => r#"{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}"#;
    /// Annotations of the gateways' pods.
    "podAnnotations": TextMap => "{}";
    /// Labels of the gateways' pods.
    "podLabels": TextMap => "{}";
    /// Nodes for gateways, Redis and the installer of the seccomp profile.
    "nodeSelector": TextMap => "{}";
    /// The affinity of the gateways' pods.
    "affinity": Object => "{}";
    /// Tolerations of all pods.
    "tolerations": Objects => "[]";
    /// How the gateways spread over nodes and zones. Empty: as the cluster's scheduler does by default.
    "topologySpreadConstraints": Objects => "[]";
    /// The priority of all pods.
    "priorityClassName": Text => r#""""#;
    /// Volumes of the gateways' pods.
    "extraVolumes": Objects => "[]";
    /// Where the gateways mount them.
    "extraVolumeMounts": Objects => "[]";
    /// Labels of everything that the chart makes.
    "commonLabels": TextMap => "{}";
    /// The name of the chart in labels and names.
    "nameOverride": Text => r#""""#;
    /// What the names of all objects begin with.
    "fullnameOverride": Text => r#""""#;
}

const PULL_POLICY: Shape = Shape::Word(&["Always", "IfNotPresent", "Never"]);
